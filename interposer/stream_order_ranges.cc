// The latest work is kept, with the number of the allocation that it touches: the address may
// belong to another one later.
#include "interposer/stream_order_ranges.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/fault_event.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

// Older work is done in practice.
constexpr size_t kMostEntries = 512;
constexpr uint64_t kMostRows = 4096;

struct Entry {
  shadow::OperationId operation;
  uint64_t token = 0;
  uint64_t allocation = 0;
  RangeAccess range;
};

// Never destroyed: hooks run until the very end of the process.
struct Latest {
  std::mutex mutex;
  std::deque<Entry> entries;
};
Latest& TheLatest() {
  static auto* latest = new Latest;
  return *latest;
}

bool Compares() {
  static const bool compares = [] {
    const SessionOptions& options = Options();
    return options.check_races && !options.exact_checks && !options.null_rewrite;
  }();
  return compares;
}

struct Rows {
  uint64_t address, width, height, pitch;
};
// One row where the rows follow each other without gaps.
Rows RowsOf(const RangeAccess& range) {
  if (range.height > 1 && range.pitch_bytes != range.width_bytes)
    return {range.address, range.width_bytes, range.height, range.pitch_bytes};
  return {range.address, range.width_bytes * range.height, 1, range.width_bytes * range.height};
}

AccessDescription Side(const RangeAccess& range, uint64_t token, uint64_t address, uint64_t bytes) {
  AccessDescription side;
  side.address = std::max(range.address, address);
  side.bytes = static_cast<uint32_t>(bytes);
  DescribeOperation(token, &side);
  return side;
}

void Report(const Entry& first, const Entry& second, uint64_t address, uint64_t bytes) {
  RaceEvent event;
  event.kind = proto_enums::RaceKind::kStream;
  event.space = proto_enums::AddressSpace::kGlobal;
  event.missing = proto_enums::MissingOrder::kEvent;
  event.engine = "ptx";
  event.count = 1;
  event.address = address;
  event.bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  event.first = Side(first.range, first.token, address, event.bytes);
  event.second = Side(second.range, second.token, address, event.bytes);
  if (const auto found = Book().FindInnermost(address)) {
    event.has_allocation = true;
    event.allocation = Describe(*found);
  }
  Send(event);
}

}  // namespace

bool FirstOverlap(const RangeAccess& a, const RangeAccess& b, uint64_t* address, uint64_t* bytes) {
  const Rows rows = RowsOf(a), others = RowsOf(b);
  for (uint64_t row = 0; row < std::min(rows.height, kMostRows); row++) {
    const uint64_t begin = rows.address + row * rows.pitch, end = begin + rows.width;
    // The last of the other rows that begins before this one's end, and the first that reaches it.
    if (end <= others.address) continue;
    const uint64_t before = begin < others.address + others.width
                                ? 0
                                : (begin - others.address - others.width) / others.pitch + 1;
    if (before >= others.height) continue;
    const uint64_t other = others.address + before * others.pitch;
    const uint64_t first = std::max(begin, other), last = std::min(end, other + others.width);
    if (first >= last) continue;
    *address = first;
    *bytes = last - first;
    return true;
  }
  return false;
}

void CompareRanges(std::span<const RangeAccess> accesses,
                   const shadow::SubmittedOperation& operation, uint64_t token) {
  // With one stream everything is ordered.
  if (accesses.empty() || !Compares() || !SeveralStreams()) return;
  struct Conflict {
    Entry first, second;
    uint64_t address = 0, bytes = 0;
  };
  std::vector<Conflict> conflicts;
  for (const RangeAccess& access : accesses) {
    if (access.width_bytes == 0 || access.height == 0) continue;
    const auto allocation = Book().FindInnermost(access.address);
    if (!allocation) continue;  // memory of the host that no device uses
    const Entry entry{operation.id, token, allocation->id, access};
    Latest& latest = TheLatest();
    std::lock_guard lock(latest.mutex);
    for (const Entry& earlier : latest.entries) {
      Conflict conflict{earlier, entry};
      if (earlier.token == token || earlier.allocation != entry.allocation ||
          (!earlier.range.is_write && !access.is_write) ||
          ComesBefore(earlier.operation, operation) ||
          !FirstOverlap(earlier.range, access, &conflict.address, &conflict.bytes)) {
        continue;
      }
      conflicts.push_back(conflict);
    }
    latest.entries.push_back(entry);
    if (latest.entries.size() > kMostEntries) latest.entries.pop_front();
  }
  for (const Conflict& conflict : conflicts)
    Report(conflict.first, conflict.second, conflict.address, conflict.bytes);
}

}  // namespace ops_debug::interposer
