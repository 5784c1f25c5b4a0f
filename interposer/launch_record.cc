// A ring of recent launches, a map of graph nodes, and counters per kernel.
#include "interposer/launch_record.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/process.h"

namespace ops_debug::interposer {
namespace {

// Never destroyed: hooks run until the very end of the process.
struct Recent {
  std::mutex mutex;
  std::vector<LaunchRecord> ring{kRememberedLaunches};
  std::unordered_map<uint64_t, LaunchRecord> nodes;
};
Recent& TheRecent() {
  static auto* recent = new Recent;
  return *recent;
}

struct Summaries {
  std::mutex mutex;
  std::vector<std::pair<ModulePointer, KernelRecord*>>
      waiting;  // the module keeps the record alive
};
Summaries& TheSummaries() {
  static auto* summaries = new Summaries;
  return *summaries;
}

}  // namespace

void EnterSummary(const ModulePointer& module, KernelRecord& kernel) {
  if (kernel.in_summary.load() || kernel.in_summary.exchange(true)) return;
  Summaries& summaries = TheSummaries();
  std::lock_guard lock(summaries.mutex);
  summaries.waiting.emplace_back(module, &kernel);
}

static std::atomic<uint64_t> g_next_launch_id{1};
uint64_t NextLaunchId() { return g_next_launch_id++; }
uint64_t LatestLaunchId() { return g_next_launch_id - 1; }

void RememberLaunch(LaunchRecord record) {
  Recent& recent = TheRecent();
  LaunchRecord old;  // destroyed outside the lock: it may be the last to hold a module
  std::lock_guard lock(recent.mutex);
  if (record.graph_node && recent.nodes.size() < kRememberedNodes) {
    const uint64_t id = record.id;
    recent.nodes[id] = std::move(record);
    return;
  }
  LaunchRecord& slot = recent.ring[record.id % kRememberedLaunches];
  old = std::move(slot);
  slot = std::move(record);
}

bool FindLaunch(uint64_t id, LaunchRecord* record) {
  if (id == 0) return false;
  Recent& recent = TheRecent();
  std::lock_guard lock(recent.mutex);
  if (const auto node = recent.nodes.find(id); node != recent.nodes.end()) {
    *record = node->second;
    return true;
  }
  const LaunchRecord& held = recent.ring[id % kRememberedLaunches];
  if (held.id != id) return false;
  *record = held;
  return true;
}

LaunchDescription Describe(const LaunchRecord& record) {
  LaunchDescription description;
  description.launch_id = record.id;
  if (record.function) description.kernel = record.function->kernel->name;
  description.grid = record.grid;
  description.block = record.block;
  description.dynamic_shared_bytes = record.dynamic_shared_bytes;
  if (record.stack) description.stack = ResolveHostStack(*record.stack);
  description.python_stack = ResolvePythonStack(record.python_stack);
  description.graph_node = record.graph_node;
  return description;
}

void CountChecked(const ModulePointer& module, KernelRecord& kernel, Engine engine,
                  uint64_t launches) {
  kernel.checked_launches[static_cast<size_t>(engine)].fetch_add(launches,
                                                                 std::memory_order_relaxed);
  EnterSummary(module, kernel);
}

void CountUnchecked(const ModulePointer& module, KernelRecord& kernel, std::string_view reason,
                    uint64_t launches) {
  {
    std::lock_guard lock(kernel.mutex);
    auto found = kernel.unchecked_launches.find(reason);
    if (found == kernel.unchecked_launches.end())
      found = kernel.unchecked_launches.emplace(std::string(reason), 0).first;
    found->second += launches;
  }
  EnterSummary(module, kernel);
}

namespace {

// What the parent has counted is the parent's to send.
[[maybe_unused]] const bool registered = [] {
  AtForkInChild([]() noexcept {
    for (const auto& [module, kernel] : TheSummaries().waiting) {
      for (auto& launches : kernel->checked_launches) launches = 0;
      kernel->timing.timed_launches = kernel->timing.timed_duration_ns = 0;
      kernel->unchecked_launches.clear();
      kernel->in_summary = false;
    }
    TheSummaries().waiting.clear();
  });
  return true;
}();

void SendSummary(KernelRecord& kernel) {
  LaunchSummaryEvent event;
  event.module_id = kernel.module_id;
  event.kernel = kernel.name;
  // Times are of all launches of the kernel: they travel once.
  event.timed_launches = kernel.timing.timed_launches.exchange(0);
  event.timed_duration_ns = kernel.timing.timed_duration_ns.exchange(0);
  const auto send = [&] {
    Send(event);
    event.timed_launches = event.timed_duration_ns = 0;
  };
  for (const Engine engine : {Engine::kPtx, Engine::kSass, Engine::kEmulator}) {
    const auto index = static_cast<size_t>(engine);
    event.launches = event.checked_launches = kernel.checked_launches[index].exchange(0);
    event.engine = EngineName(engine);
    if (event.launches != 0) send();
  }
  std::map<std::string, uint64_t, std::less<>> unchecked;
  {
    std::lock_guard lock(kernel.mutex);
    unchecked.swap(kernel.unchecked_launches);
  }
  event.checked_launches = 0;
  event.engine.clear();
  for (const auto& [reason, count] : unchecked) {
    event.launches = count;
    event.not_checked_reason = reason;
    send();
  }
  if (event.timed_launches != 0) {  // measured earlier, read only now
    event.launches = 0;
    event.not_checked_reason.clear();
    send();
  }
}

}  // namespace

void SendLaunchSummaries() {
  std::vector<std::pair<ModulePointer, KernelRecord*>> waiting;
  {
    Summaries& summaries = TheSummaries();
    std::lock_guard lock(summaries.mutex);
    waiting.swap(summaries.waiting);
  }
  for (const auto& [module, kernel] : waiting) {
    kernel->in_summary = false;  // before the counts are taken: what comes later
                                 // enters the list again
    SendSummary(*kernel);
  }
}

}  // namespace ops_debug::interposer
