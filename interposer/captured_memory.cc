// A search from the parameters, breadth first: what they point into directly must fit, the rest is
// taken while it fits. Blocks of a framework's pool count, not the segments that they are part of.
#include "interposer/captured_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "interposer/init_state.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::AllocationKind;
using shadow::AllocationRange;

// Pointers lie in parameters, variables and small tables; a large array holds data.
constexpr uint64_t kMostScannedBytes = 1 << 20;
constexpr size_t kMostAllocations = 4096;

// Others than kernels and copies may write it.
bool IsHostVisible(const Allocation& allocation) {
  return allocation.kind == AllocationKind::kHost || allocation.kind == AllocationKind::kImported ||
         std::string_view(allocation.api) == "cuMemAllocManaged";
}

bool Overlap(const AllocationRange& range, uint64_t address, uint64_t size_bytes) {
  return address < range.base + range.size_bytes && range.base < address + size_bytes;
}

// What an address concerns in the kernel's view; false: memory that nobody holds.
bool Resolve(uint64_t address, Allocation* out) {
  auto found = Book().FindContaining(address);
  if (!found || found->freed) return false;
  if (found->pool && !found->graph_pool) {
    auto block = Book().FindInnermost(address);
    if (!block || block->freed || block->segment_base == 0) return false;
    const AllocationKind kind = found->kind;
    const char* const api = found->api;
    *out = std::move(*block);
    out->kind = kind;
    if (kind == AllocationKind::kHost) out->api = api;
    return true;
  }
  *out = std::move(*found);
  return true;
}

bool ReadUnwritten(ContextState& context, StreamReader& reader, const Allocation& allocation,
                   std::vector<CapturedRange>* ranges) {
  if (!context.init || IsHostVisible(allocation)) return true;
  const uint64_t begin = allocation.base, end = allocation.end();
  std::string bits;
  for (const InitState::Bits& piece : context.init->BitsOf(begin, end - begin)) {
    bits.resize(piece.bytes);
    if (!reader.Read(piece.place, piece.bytes, bits.data())) return false;
    for (uint64_t byte = 0; byte < piece.bytes; byte++) {
      const auto eight = static_cast<uint8_t>(bits[byte]);
      if (eight == 0) continue;
      for (uint32_t bit = 0; bit < 8; bit++) {
        const uint64_t address = piece.address + byte * 8 + bit;
        if ((eight >> bit & 1) == 0 || address < begin || address >= end) continue;
        if (!ranges->empty() && ranges->back().offset + ranges->back().size == address - begin) {
          ranges->back().size++;
        } else {
          ranges->push_back({address - begin, 1});
        }
      }
    }
  }
  return true;
}

}  // namespace

bool HasUnwritten(ContextState& context, StreamReader& reader, uint64_t pointer,
                  uint64_t most_bytes) {
  Allocation allocation;
  std::vector<CapturedRange> ranges;
  return Resolve(pointer, &allocation) && allocation.size_bytes <= most_bytes &&
         ReadUnwritten(context, reader, allocation, &ranges) && !ranges.empty();
}

std::string SizeInWords(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    unit++;
  }
  char text[32];
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

CapturedReach::CapturedReach(const ContextPointer& context, StreamReader& reader,
                             uint64_t budget_bytes, Capture* capture)
    : context_(context),
      reader_(reader),
      budget_bytes_(budget_bytes),
      capture_(*capture),
      live_(Book().LiveRanges()) {
  for (const CapturedMemory& memory : capture->memory) {
    used_bytes_ += memory.content.size();
    claimed_.push_back({memory.address, memory.content.size()});
  }
  for (const CapturedModule& module : capture->modules) {
    for (const CapturedVariable& variable : module.variables) {
      used_bytes_ += variable.content.size();
      claimed_.push_back({variable.address, variable.content.size()});
    }
  }
}

bool CapturedReach::Covered(uint64_t address, uint64_t size_bytes) const {
  return std::any_of(claimed_.begin(), claimed_.end(), [&](const AllocationRange& range) {
    return Overlap(range, address, size_bytes);
  });
}

bool CapturedReach::AddVariable(CapturedModule& module, const std::string& name, uint64_t address,
                                uint64_t size_bytes) {
  if (size_bytes == 0 || Covered(address, size_bytes)) return true;
  if (size_bytes > budget_bytes_ - std::min(used_bytes_, budget_bytes_)) {
    failure_ = "variable " + name + " holds " + SizeInWords(size_bytes) + "; the limit is " +
               SizeInWords(budget_bytes_) + " (--replay-memory)";
    return false;
  }
  CapturedVariable variable{name, address, std::string(size_bytes, '\0')};
  if (!reader_.Read(address, size_bytes, variable.content.data())) {
    failure_ = reader_.failure();
    return false;
  }
  used_bytes_ += size_bytes;
  claimed_.push_back({address, size_bytes});
  if (auto found = Book().FindStart(address)) allocations_.push_back(std::move(*found));
  Scan(variable.content, address, /*direct=*/false);
  module.variables.push_back(std::move(variable));
  return true;
}

bool CapturedReach::AddParameters(std::span<const char> parameters) {
  Scan(parameters, 0, /*direct=*/true);
  uint64_t direct_bytes = used_bytes_;
  for (const Found& found : queue_) direct_bytes += found.direct ? found.allocation.size_bytes : 0;
  if (direct_bytes <= budget_bytes_) return true;
  failure_ = "its buffers hold " + SizeInWords(direct_bytes) + "; the limit is " +
             SizeInWords(budget_bytes_) + " (--replay-memory)";
  return false;
}

void CapturedReach::Point(uint64_t address, bool direct) {
  const auto behind =
      std::upper_bound(live_.begin(), live_.end(), address,
                       [](uint64_t value, const AllocationRange& at) { return value < at.base; });
  if (behind == live_.begin()) return;
  const AllocationRange& range = *std::prev(behind);
  if (address - range.base >= range.size_bytes) return;
  const auto claimed =
      std::find_if(claimed_.begin(), claimed_.end(),
                   [&](const AllocationRange& other) { return Overlap(other, address, 1); });
  if (claimed != claimed_.end()) {
    if (!direct) return;
    for (Found& found : queue_) found.direct |= found.allocation.base == claimed->base;
    return;
  }
  Found found;
  if (claimed_.size() >= kMostAllocations || !Resolve(address, &found.allocation)) return;
  if (Covered(found.allocation.base, found.allocation.size_bytes)) return;
  found.direct = direct;
  claimed_.push_back({found.allocation.base, found.allocation.size_bytes});
  queue_.push_back(std::move(found));
}

void CapturedReach::Scan(std::span<const char> bytes, uint64_t address, bool direct) {
  constexpr size_t kWord = sizeof(uint64_t);
  if (bytes.size() <= kMostScannedBytes) {
    for (size_t at = (kWord - address % kWord) % kWord; at + kWord <= bytes.size(); at += kWord) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + at, kWord);
      Point(word, direct);
    }
  }
  // In the parameters, where the buffer begins says nothing about the alignment in constant memory.
  FindTensorMaps(bytes, address, address == 0 ? kWord : kTensorMapAlignment, &capture_.tensor_maps);
  for (; scanned_maps_ < capture_.tensor_maps.size(); scanned_maps_++)
    Point(capture_.tensor_maps[scanned_maps_].address, direct);
}

bool CapturedReach::Finish() {
  // What is direct comes first, then in the order of discovery; reading adds to the queue.
  std::stable_partition(queue_.begin(), queue_.end(), [](const Found& at) { return at.direct; });
  for (size_t i = 0; i < queue_.size(); i++) {
    const Found found = queue_[i];
    if (found.allocation.size_bytes > budget_bytes_ - std::min(used_bytes_, budget_bytes_)) {
      if (!found.direct) continue;
      failure_ = "its buffers hold more than the limit of " + SizeInWords(budget_bytes_) +
                 " (--replay-memory)";
      return false;
    }
    if (!Read(found.allocation)) return false;
  }
  for (const TensorMapRecord& map : capture_.tensor_maps) {
    if (map.tiled) continue;
    failure_ = "it uses a tensor map of " + map.api + ", which a replay does not have";
    return false;
  }
  return true;
}

bool CapturedReach::Read(const Allocation& allocation) {
  CapturedMemory memory;
  memory.address = allocation.base;
  memory.content.resize(allocation.size_bytes);
  memory.host = IsHostVisible(allocation);
  // The bits come behind the contents: what is written meanwhile then counts as written.
  if (!reader_.Read(memory.address, memory.content.size(), memory.content.data()) ||
      !ReadUnwritten(*context_, reader_, allocation, &memory.unwritten)) {
    failure_ = reader_.failure();
    return false;
  }
  used_bytes_ += memory.content.size();
  allocations_.push_back(allocation);
  Scan(memory.content, memory.address, /*direct=*/false);
  capture_.memory.push_back(std::move(memory));
  return true;
}

std::vector<Allocation> CapturedReach::allocations() const {
  std::vector<Allocation> sorted = allocations_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Allocation& a, const Allocation& b) {
    return a.size_bytes > b.size_bytes;
  });
  return sorted;
}

}  // namespace ops_debug::interposer
