// The rules that the allocation hooks share: how a block gets its red zone, how
// it enters the book and shadow memory, and what becomes of it when it is
// freed.
#pragma once

#include <cstdint>

#include "interposer/context_state.h"
#include "interposer/stack.h"
#include "shadow/host/allocation_book.h"

namespace ops_debug::interposer {

shadow::HostStack CaptureStack();
HostStack ToHostStack(const shadow::HostStack& stack);

// What the driver is asked for in place of `size_bytes`: the red zone is at the
// right end only, so that the program's pointer keeps the driver's alignment. 0
// if the sum does not fit.
uint64_t SizeWithRedZone(uint64_t size_bytes);

// Enters a block in the book and marks shadow memory. `allocation` has base,
// sizes, kind, api; stack and context are filled in here.
void Track(ContextState& state, shadow::Allocation allocation);

// Changes whenever some allocation was tracked.
uint64_t AllocationVersion();

// Takes an allocation out of book and shadow memory, because the driver has
// taken or is about to take it back.
void Forget(ContextState* state, const shadow::Allocation& allocation);

// Marks a block freed now (the device is idle), keeps it in quarantine. False:
// somebody freed it meanwhile.
bool FreeIntoQuarantine(ContextState& state, const shadow::Allocation& allocation, const char* api);
// The same in stream order. On `*refused` nothing has changed: the caller lets
// the driver free the block.
bool FreeIntoQuarantineInStream(ContextState& state, const shadow::Allocation& allocation,
                                const char* api, CUstream explicit_stream, bool* refused);

// The driver has taken the block back, or will in stream order. Without quarantine (memory is not
// checked) the book remembers what was there for a while, for reports that come late.
void FreeUnchecked(ContextState* state, const shadow::Allocation& allocation, const char* api);

// Gives all of the quarantine back to the driver.
void FlushQuarantine(ContextState& state);

// Allocates through `call(bytes)`, which stores the address in `*address`, with
// a red zone if there is room.
template <class Call>
CUresult AllocateTracked(ContextState& state, shadow::AllocationKind kind, const char* api,
                         CUstream stream, const CUdeviceptr* address, uint64_t size_bytes,
                         Call call) {
  uint64_t reserved_bytes = ChecksMemory() ? SizeWithRedZone(size_bytes) : size_bytes;
  if (size_bytes == 0 || reserved_bytes == 0 || state.lost) return call(size_bytes);
  CUresult result = call(reserved_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    FlushQuarantine(state);
    result = call(reserved_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      reserved_bytes = size_bytes;
      result = call(size_bytes);
    }
  }
  if (result == CUDA_SUCCESS) {
    shadow::Allocation allocation;
    allocation.base = *address;
    allocation.size_bytes = size_bytes;
    allocation.reserved_bytes = reserved_bytes;
    allocation.kind = kind;
    allocation.api = api;
    allocation.stream = stream;
    Track(state, std::move(allocation));
  }
  return result;
}

}  // namespace ops_debug::interposer
