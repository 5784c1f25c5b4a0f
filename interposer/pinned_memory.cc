#include "interposer/pinned_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "interposer/exact_checks.h"
#include "interposer/fault_event.h"
#include "interposer/python_stack.h"
#include "interposer/stack.h"

namespace ops_debug::interposer {
namespace {

// Larger sources are compared in part; more copies than these at a time are not looked at.
constexpr uint64_t kMostBytes = 1 << 20;
constexpr size_t kMostUses = 1024;
constexpr uint64_t kMostBytesOfAll = 64 << 20;
// Beyond this much memory the question who wrote it is too dear to ask at every wait.
constexpr uint64_t kMostVisibleBytes = 1 << 20;
// Work that may write such memory and is not known to be done.
constexpr size_t kMostWriters = 256;

// A copy that is not known to be done.
struct Use {
  uint64_t token = 0;
  shadow::OperationId operation;
  RangeAccess range;
  RangeAccess compared;       // part of it
  bool has_contents = false;  // of a source
  std::string contents;       // row behind row
  uint64_t writers = 0;
};

struct Visible {
  uint64_t bytes = 0;
  uint64_t writers = 0;  // EmulatorChecks::writers when last looked at
};

// Never destroyed: hooks run until the very end of the process.
struct Memory {
  std::mutex mutex;
  std::map<uint64_t, Visible> visible;  // by address
  uint64_t visible_bytes = 0;
  std::vector<Use> uses;
  uint64_t content_bytes = 0;
  // Without the emulator's checks.
  std::vector<shadow::OperationId> writers;  // the latest
  uint64_t writer_count = 0;                 // of all times
  uint64_t asked_count = 0;                  // at the last question who wrote

  bool IsVisible(uint64_t address, uint64_t bytes) const {
    const auto behind = visible.lower_bound(address + bytes);
    if (behind == visible.begin()) return false;
    const auto& [begin, known] = *std::prev(behind);
    return begin + known.bytes > address;
  }
};
Memory& TheMemory() {
  static auto* memory = new Memory;
  return *memory;
}

uint64_t WritersOf(uint64_t address, uint64_t bytes) {
  const shadow::EmulatorChecks* checks = ExactChecks();
  return checks && checks->writers ? checks->writers(address, bytes) : 0;
}

// By the kernel: the program may have given the memory back although a copy is under way.
bool ReadRows(const RangeAccess& range, std::string* contents) {
  contents->resize(range.width_bytes * range.height);
  for (uint64_t row = 0; row < range.height; row++) {
    iovec to{contents->data() + row * range.width_bytes, range.width_bytes};
    iovec from{reinterpret_cast<void*>(range.address + row * range.pitch_bytes), range.width_bytes};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(range.width_bytes))
      return false;
  }
  return true;
}

uint64_t Extent(const RangeAccess& range) {
  return (range.height - 1) * range.pitch_bytes + range.width_bytes;
}

bool IsReached(const shadow::OperationId& operation, const shadow::OrderPoint& point) {
  return point.open ||
         (operation.slot < point.clock.size() && operation.number <= point.clock[operation.slot]);
}

bool IsDone(const shadow::OperationId& operation, const shadow::VectorClock& known) {
  return IsReached(operation, {.clock = known});
}

void AddWriter(Memory& memory, const shadow::OperationId& operation) {
  memory.writer_count++;
  memory.writers.push_back(operation);
  if (memory.writers.size() <= kMostWriters) return;
  const shadow::VectorClock known = HostClock();
  std::erase_if(memory.writers,
                [&](const shadow::OperationId& writer) { return IsDone(writer, known); });
}

// `address`, `bytes`: what both touch.
void Report(const Use& use, uint64_t address, uint64_t bytes, std::string operation,
            bool is_write) {
  RaceEvent event;
  event.kind = proto_enums::RaceKind::kStream;
  event.space = proto_enums::AddressSpace::kGlobal;
  event.missing = proto_enums::MissingOrder::kHostSync;
  event.engine = ExactChecks() ? "emulator" : "ptx";
  event.count = 1;
  event.address = address;
  event.bytes = static_cast<uint32_t>(bytes);
  event.first.address = use.range.address;
  event.first.bytes = static_cast<uint32_t>(Extent(use.range));
  DescribeOperation(use.token, &event.first);
  event.second.operation = std::move(operation);
  if (is_write) {
    event.second.has_site = true;
    event.second.site.access = proto_enums::AccessKind::kStore;
    event.second.site.space = proto_enums::AddressSpace::kGlobal;
  }
  event.second.address = address;
  event.second.bytes = event.bytes;
  event.second.stack = ResolveHostStack(*CachedHostStack());
  event.second.python_stack = ResolvePythonStack(CapturePythonStack());
  if (auto found = Book().FindInnermost(address)) {
    event.has_allocation = true;
    event.allocation = Describe(*found);
  }
  Send(event);
}

void ReportChange(const Use& use, const std::string& now, const char* api) {
  const size_t first = static_cast<size_t>(
      std::mismatch(now.begin(), now.end(), use.contents.begin()).first - now.begin());
  size_t last = now.size() - 1;
  while (last > first && now[last] == use.contents[last]) last--;
  const auto address_of = [&](size_t offset) {
    return use.compared.address + offset / use.compared.width_bytes * use.compared.pitch_bytes +
           offset % use.compared.width_bytes;
  };
  Report(use, address_of(first), address_of(last) - address_of(first) + 1,
         std::string("the host before ") + (api ? api : "it waited"), /*is_write=*/true);
}

}  // namespace

void NoteHostVisible(uint64_t address, uint64_t bytes) {
  if (!ChecksStreamOrder() || address == 0) return;
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  Visible& known = memory.visible[address];
  memory.visible_bytes += bytes - known.bytes;
  known.bytes = bytes;
  known.writers = WritersOf(address, bytes);
}

void ForgetHostVisible(uint64_t address) {
  if (!ChecksStreamOrder()) return;
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  const auto found = memory.visible.find(address);
  if (found == memory.visible.end()) return;
  memory.visible_bytes -= found->second.bytes;
  memory.visible.erase(found);
}

bool HostVisibleWritten() {
  const shadow::EmulatorChecks* checks = ExactChecks();
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  if (memory.visible.empty()) return false;
  if (!checks) {
    const shadow::VectorClock known = HostClock();
    std::erase_if(memory.writers,
                  [&](const shadow::OperationId& writer) { return IsDone(writer, known); });
    return std::exchange(memory.asked_count, memory.writer_count) != memory.writer_count ||
           !memory.writers.empty();
  }
  if (!checks->writers || memory.visible_bytes > kMostVisibleBytes) return true;
  bool written = false;
  for (auto& [address, visible] : memory.visible) {
    const uint64_t writers = checks->writers(address, visible.bytes);
    written |= writers != visible.writers;
    visible.writers = writers;
  }
  return written;
}

void NoteWorkWrites(std::span<const RangeAccess> accesses, const shadow::OperationId& operation) {
  if (ExactChecks()) return;
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  if (memory.visible.empty()) return;
  const bool writes =
      accesses.empty() || std::ranges::any_of(accesses, [&](const RangeAccess& access) {
        return access.is_write && access.width_bytes != 0 && access.height != 0 &&
               memory.IsVisible(access.address, Extent(access));
      });
  if (writes) AddWriter(memory, operation);
}

void NoteKernelWrites(const shadow::KernelPlan* plan, const shadow::LaunchParameters& parameters,
                      const shadow::OperationId& operation) {
  if (ExactChecks()) return;
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  if (memory.visible.empty()) return;
  bool writes = !plan || !plan->races.checked || plan->races.writes_elsewhere ||
                !plan->races.unchecked.empty();
  for (size_t i = 0; !writes && i < plan->races.slots.size(); i++) {
    uint64_t pointer = 0;
    shadow::AllocationRange range;
    writes = plan->races.slots[i].writes &&
             (!parameters.ReadPointer(plan->races.slots[i].parameter_offset, &pointer) ||
              !Book().FindLive(pointer, &range) || memory.IsVisible(range.base, range.size_bytes));
  }
  if (writes) AddWriter(memory, operation);
}

// Whether a change of contents from now on can be told from a device's writing: without the
// emulator's checks none may be under way.
static bool SeesWriters() {
  if (const shadow::EmulatorChecks* checks = ExactChecks()) return checks->writers != nullptr;
  const shadow::VectorClock known = HostClock();
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  return std::ranges::all_of(
      memory.writers, [&](const shadow::OperationId& writer) { return IsDone(writer, known); });
}

// Equal before and after: no device wrote there.
static uint64_t WritersNow(const RangeAccess& range) {
  if (ExactChecks()) return WritersOf(range.address, Extent(range));
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  return memory.writer_count;
}

void RememberPinned(const RangeAccess& range, uint64_t token,
                    const shadow::OperationId& operation) {
  if (range.width_bytes == 0 || range.height == 0) return;
  Use use{.token = token, .operation = operation, .range = range};
  if (!range.is_write && SeesWriters()) {
    RangeAccess compared = range;
    if (range.width_bytes > kMostBytes) compared.height = 1;
    compared.width_bytes = std::min(range.width_bytes, kMostBytes);
    compared.height = std::min(compared.height, kMostBytes / compared.width_bytes);
    use.writers = WritersNow(range);
    use.compared = compared;
    use.has_contents = ReadRows(compared, &use.contents);
  }
  Memory& memory = TheMemory();
  std::lock_guard lock(memory.mutex);
  if (memory.uses.size() >= kMostUses) return;
  if (memory.content_bytes + use.contents.size() > kMostBytesOfAll) {
    use.has_contents = false;
    use.contents.clear();
  }
  memory.content_bytes += use.contents.size();
  memory.uses.push_back(std::move(use));
}

void ComparePinnedSources(const shadow::OrderPoint& point, const char* api) {
  std::vector<Use> done;
  {
    Memory& memory = TheMemory();
    std::lock_guard lock(memory.mutex);
    if (memory.uses.empty()) return;
    std::erase_if(memory.uses, [&](Use& use) {
      if (!IsReached(use.operation, point)) return false;
      memory.content_bytes -= use.contents.size();
      if (use.has_contents) done.push_back(std::move(use));
      return true;
    });
  }
  for (const Use& use : done) {
    std::string now;
    if (!ReadRows(use.compared, &now) || now == use.contents) continue;
    if (WritersNow(use.range) == use.writers) ReportChange(use, now, api);
  }
}

void PinnedGivenBack(uint64_t address, uint64_t bytes, const shadow::VectorClock& known,
                     const char* api) {
  const shadow::OrderPoint point{.clock = known};
  std::vector<Use> pending;
  {
    Memory& memory = TheMemory();
    std::lock_guard lock(memory.mutex);
    std::erase_if(memory.uses, [&](Use& use) {
      if (use.range.address >= address + bytes || use.range.address + Extent(use.range) <= address)
        return false;
      memory.content_bytes -= use.contents.size();
      if (!IsReached(use.operation, point)) pending.push_back(std::move(use));
      return true;
    });
  }
  for (const Use& use : pending) {
    const uint64_t begin = std::max(address, use.range.address);
    const uint64_t end = std::min(address + bytes, use.range.address + Extent(use.range));
    Report(use, begin, end - begin, api, /*is_write=*/false);
  }
}

}  // namespace ops_debug::interposer
