// Red zones, quarantine and shadow marks around the program's allocations. Book and shadow change
// in the same order as the driver's own state: before a free reaches it, after an allocation has
// come back.
#include "interposer/allocation_tracking.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "interposer/event_sender.h"
#include "interposer/exact_checks.h"
#include "interposer/fault_drain.h"
#include "interposer/init_state.h"
#include "interposer/race_state.h"
#include "interposer/shadow_updates.h"
#include "interposer/tensor_blocks.h"

namespace ops_debug::interposer {
namespace {

constexpr uint64_t kAlignmentBytes = 256;
constexpr uint64_t kRedZoneBytes = 256;

using shadow::Allocation;
using shadow::AllocationKind;
using shadow::QuarantinedBlock;

// Shadow memory that says something wrong makes false alarms, so a failed
// update ends checking in this context.
void Require(ContextState& state, bool updated) {
  if (updated || !ChecksMemory() || state.lost.exchange(true)) return;
  SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                           .text = "shadow memory could not be updated; further "
                                   "kernels of this context run unchecked",
                           .hint = "the device is out of memory, or an earlier CUDA "
                                   "error has broken the context"});
}

// The real free of a block that leaves quarantine. The context is current
// (InternalCalls).
void GiveBack(ContextState& state, const QuarantinedBlock& block) {
  Book().Remove(block.base);
  const auto event = static_cast<CUevent>(block.event);
  if (block.stream_ordered && event) {
    OPS_DEBUG_REAL(cuStreamWaitEvent)(state.stream, event, 0);
    Require(state,
            state.shadow.MarkUnknownInStream(block.base, block.reserved_bytes, state.stream));
    OPS_DEBUG_REAL(cuMemFreeAsync)(block.base, state.stream);
  } else {
    if (event) OPS_DEBUG_REAL(cuEventSynchronize)(event);
    Require(state, state.shadow.MarkUnknown(block.base, block.reserved_bytes));
    OPS_DEBUG_REAL(cuMemFree_v2)(block.base);
  }
  if (event) OPS_DEBUG_REAL(cuEventDestroy_v2)(event);
}

void PutIntoQuarantine(ContextState& state, const QuarantinedBlock& block) {
  std::vector<QuarantinedBlock> evicted;
  {
    std::lock_guard lock(state.quarantine_mutex);
    evicted = state.quarantine.Push(block);
  }
  if (evicted.empty()) return;
  // A fault that is reported after its allocation has left the book would have
  // no allocation to name.
  DrainFaults(DrainDepth::kPublished);
  for (const QuarantinedBlock& old : evicted) GiveBack(state, old);
}

}  // namespace

shadow::HostStack CaptureStack() {
  const HostStack stack = CaptureHostStack();
  return {stack.return_addresses.begin(), stack.return_addresses.begin() + stack.count};
}

HostStack ToHostStack(const shadow::HostStack& stack) {
  HostStack out;
  out.count = static_cast<uint32_t>(std::min<size_t>(stack.size(), HostStack::kMaxFrames));
  std::copy_n(stack.begin(), out.count, out.return_addresses.begin());
  return out;
}

uint64_t SizeWithRedZone(uint64_t size_bytes) {
  const uint64_t padded =
      (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes + kRedZoneBytes;
  return padded > size_bytes ? padded : 0;
}

static std::atomic<uint64_t> g_allocation_version{1};
uint64_t AllocationVersion() { return g_allocation_version.load(std::memory_order_relaxed); }

namespace {

// The memory is nobody's any more. What else the driver does with it is not seen, so nothing counts
// as unwritten.
void EndInitState(const ContextState* state, const Allocation& allocation, CUstream stream) {
  if (!state || state->lost || !state->init) return;
  state->init->Written(allocation.base, allocation.reserved_bytes, 1, 0, stream);
}

}  // namespace

void Track(ContextState& state, Allocation allocation) {
  const CUstream stream = static_cast<CUstream>(allocation.stream);
  if (state.init) state.init->Allocated(allocation);
  allocation.context = state.context;
  allocation.allocation_stack = CaptureStack();
  allocation.tensor = TensorBeingAllocated(allocation.size_bytes);
  const uint64_t base = allocation.base, size = allocation.size_bytes;
  const uint64_t reserved = std::max(allocation.reserved_bytes, size);
  // Nothing is known to be there, but what the driver hands out now may have left us unnoticed.
  state.updates->DropSegment(base, reserved);
  if (allocation.reservation != 0) {
    Book().InsertMapped(std::move(allocation));
  } else {
    Book().Insert(std::move(allocation));
  }
  g_allocation_version.fetch_add(1, std::memory_order_relaxed);
  if (state.races) state.races->Renew(base, size, stream);
  if (!ChecksMemory()) return;
  InternalCalls calls(state);
  Require(state, calls.ok() && state.shadow.MarkValid(base, size, reserved));
  // A segment that grows by mapping more memory behind it.
  if (Book().IsPool(base)) {
    Require(state, state.updates->AdoptSegment(base, size, /*empty=*/true));
  }
}

void Forget(ContextState* state, const Allocation& allocation) {
  Book().Remove(allocation.base);
  EndInitState(state, allocation, nullptr);
  if (!state || state->lost || !ChecksMemory()) return;
  state->updates->DropSegment(allocation.base, allocation.reserved_bytes);
  InternalCalls calls(*state);
  Require(*state,
          calls.ok() && state->shadow.MarkUnknown(allocation.base, allocation.reserved_bytes));
}

bool FreeIntoQuarantine(ContextState& state, const Allocation& allocation, const char* api) {
  if (!Book().MarkFreed(allocation.base, api, CaptureStack())) return false;
  ForgetForChecks(allocation.base, allocation.reserved_bytes);
  EndInitState(&state, allocation, nullptr);
  state.updates->DropSegment(allocation.base, allocation.reserved_bytes);
  InternalCalls calls(state);
  Require(state, calls.ok() && state.shadow.MarkFreed(allocation.base, allocation.reserved_bytes));
  PutIntoQuarantine(state, {.base = allocation.base, .reserved_bytes = allocation.reserved_bytes});
  return true;
}

bool FreeIntoQuarantineInStream(ContextState& state, const Allocation& allocation, const char* api,
                                CUstream explicit_stream, bool* refused) {
  InternalCalls calls(state);
  CUevent event = nullptr;
  if (!calls.ok() ||
      OPS_DEBUG_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    *refused = true;
    return false;
  }
  if (!Book().MarkFreed(allocation.base, api, CaptureStack())) {
    OPS_DEBUG_REAL(cuEventDestroy_v2)(event);
    return false;
  }
  EndInitState(&state, allocation, explicit_stream);
  state.updates->DropSegment(allocation.base, allocation.reserved_bytes);
  Require(state, state.shadow.MarkFreedInStream(allocation.base, allocation.reserved_bytes,
                                                explicit_stream));
  if (OPS_DEBUG_REAL(cuEventRecord)(event, explicit_stream) != CUDA_SUCCESS) {
    // Only a broken context or stream gets here: nothing that follows will run.
    OPS_DEBUG_REAL(cuEventDestroy_v2)(event);
    Book().Remove(allocation.base);
    *refused = true;
    return false;
  }
  PutIntoQuarantine(state, {.base = allocation.base,
                            .reserved_bytes = allocation.reserved_bytes,
                            .stream_ordered = allocation.kind == AllocationKind::kStreamOrdered,
                            .event = event});
  return true;
}

void FreeUnchecked(ContextState* state, const Allocation& allocation, const char* api) {
  if (ChecksMemory()) {
    Forget(state, allocation);
    return;
  }
  EndInitState(state, allocation, nullptr);
  // Another thread may have been given the memory meanwhile.
  const auto now = Book().FindStart(allocation.base);
  if (!now || now->id != allocation.id) return;
  if (!Book().MarkFreed(allocation.base, api, CaptureStack())) return;
  constexpr size_t kMostRemembered = 4096;
  struct Remembered {
    std::mutex mutex;
    std::deque<std::pair<uint64_t, uint64_t>> blocks;  // base, id
  };
  static auto& remembered = *new Remembered;
  std::pair<uint64_t, uint64_t> oldest{};
  {
    std::lock_guard lock(remembered.mutex);
    remembered.blocks.emplace_back(allocation.base, allocation.id);
    if (remembered.blocks.size() <= kMostRemembered) return;
    oldest = remembered.blocks.front();
    remembered.blocks.pop_front();
  }
  // Unless the memory is another's by now.
  const auto found = Book().FindStart(oldest.first);
  if (found && found->freed && found->id == oldest.second) Book().Remove(oldest.first);
}

void FlushQuarantine(ContextState& state) {
  std::vector<QuarantinedBlock> blocks;
  {
    std::lock_guard lock(state.quarantine_mutex);
    blocks = state.quarantine.Flush();
  }
  if (blocks.empty()) return;
  InternalCalls calls(state);
  if (!calls.ok()) return;
  for (const QuarantinedBlock& block : blocks) GiveBack(state, block);
  // A pool returns memory to the device when the stream that freed it is waited
  // for.
  OPS_DEBUG_REAL(cuStreamSynchronize)(state.stream);
}

}  // namespace ops_debug::interposer
