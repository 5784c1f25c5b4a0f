// The two levels of the store and the frameworks' caches behind one question.
#include "interposer/ptx_store.h"

#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

#include "interposer/cubin_identity.h"
#include "interposer/event_sender.h"
#include "interposer/framework_cache.h"
#include "interposer/ptx_folder.h"
#include "interposer/session.h"
#include "ptx/link.h"

namespace ops_debug::interposer {
namespace {

constexpr uint64_t kMemoryLimitBytes = 128ull << 20;

struct HashIdentity {
  size_t operator()(const CubinIdentity& cubin) const { return cubin.hash[1]; }
};

// What this process has seen, the latest first; the oldest are dropped.
class MemoryLevel {
 public:
  bool MayHold(uint64_t cubin_bytes) {
    std::lock_guard lock(mutex_);
    return sizes_.contains(cubin_bytes);
  }
  std::optional<StoredPtx> Find(const CubinIdentity& cubin) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(cubin);
    if (found == entries_.end()) return std::nullopt;
    order_.splice(order_.begin(), order_, found->second.place);
    return found->second.ptx;
  }
  void Add(const CubinIdentity& cubin, StoredPtx ptx) {
    std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(cubin); found != entries_.end()) Remove(found);
    bytes_ += ptx.text.size();
    order_.push_front(cubin);
    ++sizes_[cubin.size_bytes];
    entries_.emplace(cubin, Entry{std::move(ptx), order_.begin()});
    while (bytes_ > kMemoryLimitBytes && entries_.size() > 1) Remove(entries_.find(order_.back()));
  }

 private:
  struct Entry {
    StoredPtx ptx;
    std::list<CubinIdentity>::iterator place;
  };
  using Entries = std::unordered_map<CubinIdentity, Entry, HashIdentity>;

  void Remove(Entries::iterator entry) {
    bytes_ -= entry->second.ptx.text.size();
    const auto size = sizes_.find(entry->first.size_bytes);
    if (--size->second == 0) sizes_.erase(size);
    order_.erase(entry->second.place);
    entries_.erase(entry);
  }

  std::mutex mutex_;  // guards the rest
  Entries entries_;
  std::list<CubinIdentity> order_;
  std::unordered_map<uint64_t, uint32_t> sizes_;
  uint64_t bytes_ = 0;
};

struct Store {
  MemoryLevel memory;
  PtxFolder folder{Options().ptx_store};
  FrameworkCaches caches;
};

Store& TheStore() {
  static Store* const store = [] {
    auto* made = new Store;
    made->folder.Prepare();
    return made;
  }();
  return *store;
}

void ReportObstacle(Store& store) {
  const std::string obstacle = store.folder.obstacle();
  if (obstacle.empty()) return;
  SendOnce(DiagnosticEvent{
      .severity = proto_enums::Severity::kWarning,
      .text = "the store of PTX is not kept (" + obstacle +
              "): PTX is remembered only within each process, so kernels that other processes "
              "compile (ptxas), or that come from a framework's cache, may be checked as machine "
              "code only",
      .hint = "--ptx-store DIR names a folder that can be written"});
}

}  // namespace

void RememberPtx(std::span<const std::byte> cubin, StoredPtx ptx) {
  const std::optional<CubinIdentity> identity = IdentifyCubin(cubin);
  if (!identity || ptx.text.empty()) return;
  Store& store = TheStore();
  store.folder.Add(*identity, ptx);
  store.memory.Add(*identity, std::move(ptx));
}

bool MayHavePtx(uint64_t cubin_bytes) {
  Store& store = TheStore();
  return store.memory.MayHold(cubin_bytes) || store.folder.MayHold(cubin_bytes);
}

std::optional<StoredPtx> FindPtx(std::span<const std::byte> cubin) {
  Store& store = TheStore();
  ReportObstacle(store);
  const uint64_t cubin_bytes = ElfBytes(cubin);
  if (cubin_bytes == 0) return std::nullopt;
  cubin = cubin.first(cubin_bytes);
  if (MayHavePtx(cubin_bytes)) {
    const CubinIdentity identity = *IdentifyCubin(cubin);
    if (std::optional<StoredPtx> ptx = store.memory.Find(identity)) return ptx;
    if (std::optional<StoredPtx> ptx = store.folder.Find(identity)) {
      store.memory.Add(identity, *ptx);
      return ptx;
    }
  }
  return store.caches.Find(cubin, FrameworkCacheRoots());
}

std::string LinkTexts(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::vector<ptx::LinkInput> inputs;
  for (const std::string& text : texts)
    inputs.push_back({"input " + std::to_string(inputs.size() + 1), text});
  if (inputs.empty()) return "";
  ptx::Result<std::string> linked = ptx::LinkModules(inputs);
  return linked.ok() ? std::move(*linked) : "";
}

}  // namespace ops_debug::interposer
