// Device memory: allocation with a red zone behind it, freeing into quarantine.
// Calls that a program makes while it captures a graph go through untouched:
// their memory belongs to the graph.
#include "interposer/allocation_tracking.h"
#include "interposer/exact_checks.h"
#include "interposer/fault_drain.h"
#include "interposer/hooks.h"
#include "interposer/pinned_memory.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::AllocationKind;

const char* ApiName(DriverFunction function) { return Info(function).base.data(); }

WorkDescription InStreamOrder(DriverFunction function) { return {.api = ApiName(function)}; }

// What the driver says about a pointer that it no longer knows.
constexpr CUresult kAlreadyFreed = CUDA_ERROR_INVALID_VALUE;

}  // namespace

OPS_DEBUG_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size_bytes) {
  const ContextPointer state = address ? CurrentContextState() : nullptr;
  if (!state) return real(address, size_bytes);
  return AllocateTracked(*state, AllocationKind::kDevice, ApiName(real.function()), nullptr,
                         address, size_bytes, [&](size_t bytes) { return real(address, bytes); });
}

OPS_DEBUG_HOOK(cuMemAllocManaged, CUdeviceptr* address, size_t size_bytes, unsigned int flags) {
  const ContextPointer state = address ? CurrentContextState() : nullptr;
  if (!state) return real(address, size_bytes, flags);
  const CUresult result =
      AllocateTracked(*state, AllocationKind::kDevice, ApiName(real.function()), nullptr, address,
                      size_bytes, [&](size_t bytes) { return real(address, bytes, flags); });
  if (result == CUDA_SUCCESS) NoteHostVisible(*address, size_bytes);
  return result;
}

// Rows are padded to a pitch that only the driver knows: it is asked with a
// single row, then pitch times height bytes are allocated the common way.
// Padding between rows counts as valid, the red zone follows the last row.
OPS_DEBUG_HOOK(cuMemAllocPitch_v2, CUdeviceptr* address, size_t* pitch, size_t width_bytes,
               size_t height, unsigned int element_bytes) {
  const ContextPointer state = address && pitch && height != 0 ? CurrentContextState() : nullptr;
  if (!state || state->lost) return real(address, pitch, width_bytes, height, element_bytes);
  CUresult result = real(address, pitch, width_bytes, 1, element_bytes);
  if (result != CUDA_SUCCESS) return result;
  OPS_DEBUG_REAL(cuMemFree_v2)(*address);
  uint64_t size_bytes = 0;
  if (__builtin_mul_overflow(*pitch, height, &size_bytes)) {
    return real(address, pitch, width_bytes, height, element_bytes);
  }
  return AllocateTracked(
      *state, AllocationKind::kDevice, ApiName(real.function()), nullptr, address, size_bytes,
      [&](size_t bytes) { return OPS_DEBUG_REAL_FOR_PROGRAM(cuMemAlloc_v2)(address, bytes); });
}

OPS_DEBUG_HOOK(cuMemAllocAsync, CUdeviceptr* address, size_t size_bytes, CUstream stream) {
  const ContextPointer state =
      address ? StreamContextState(stream, real.default_stream()) : nullptr;
  const CUstream explicit_stream = ExplicitStream(stream, real.default_stream());
  if (!state || IsCapturing(explicit_stream)) return real(address, size_bytes, stream);
  OrderedWork work(InStreamOrder(real.function()), explicit_stream);
  return AllocateTracked(*state, AllocationKind::kStreamOrdered, ApiName(real.function()),
                         explicit_stream, address, size_bytes,
                         [&](size_t bytes) { return real(address, bytes, stream); });
}
OPS_DEBUG_HOOK_AS(cuMemAllocAsync_ptsz, cuMemAllocAsync)

OPS_DEBUG_HOOK(cuMemAllocFromPoolAsync, CUdeviceptr* address, size_t size_bytes, CUmemoryPool pool,
               CUstream stream) {
  const ContextPointer state =
      address ? StreamContextState(stream, real.default_stream()) : nullptr;
  const CUstream explicit_stream = ExplicitStream(stream, real.default_stream());
  if (!state || IsCapturing(explicit_stream)) return real(address, size_bytes, pool, stream);
  OrderedWork work(InStreamOrder(real.function()), explicit_stream);
  return AllocateTracked(*state, AllocationKind::kStreamOrdered, ApiName(real.function()),
                         explicit_stream, address, size_bytes,
                         [&](size_t bytes) { return real(address, bytes, pool, stream); });
}
OPS_DEBUG_HOOK_AS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)

namespace {

bool Quarantinable(const Allocation& allocation) {
  return allocation.kind == AllocationKind::kDevice ||
         allocation.kind == AllocationKind::kStreamOrdered;
}

// What the book says about a pointer that is to be freed.
enum class Freeable : uint8_t {
  kUnknown,       // not ours: the driver's answer is the answer
  kAlreadyFreed,  // in quarantine, so the driver would take it: the answer is
                  // ours
  kLive,
};
Freeable Classify(CUdeviceptr address, Allocation* allocation) {
  if (address == 0 || !ChecksAnything()) return Freeable::kUnknown;
  auto found = Book().FindContaining(address, /*reserved=*/true);
  if (!found) return Freeable::kUnknown;
  if (found->freed) return ChecksMemory() ? Freeable::kAlreadyFreed : Freeable::kUnknown;
  if (found->base != address || !Quarantinable(*found)) return Freeable::kUnknown;
  *allocation = std::move(*found);
  return Freeable::kLive;
}

}  // namespace

static CUresult FreeNow(RealCall<decltype(&::cuMemFree_v2)>& real, CUdeviceptr address) {
  Allocation allocation;
  const Freeable freeable = Classify(address, &allocation);
  if (freeable == Freeable::kUnknown) return real(address);
  if (freeable == Freeable::kAlreadyFreed) return kAlreadyFreed;
  const ContextPointer state = FindContextState(static_cast<CUcontext>(allocation.context));
  // While a graph is captured the device must not be waited for; whether the
  // program may free now is the driver's to say.
  if (!state || state->lost || AnyCapture() || !ChecksMemory()) {
    const CUresult result = real(address);
    if (result == CUDA_SUCCESS) {
      FreeUnchecked(state.get(), allocation, ApiName(real.function()));
      if (!ChecksMemory()) DrainFaults(DrainDepth::kPublished);
    }
    return result;
  }
  // cuMemFree waits for the work that may use the block; so must we, before
  // shadow memory calls it freed.
  const uint64_t launches = state->launches;
  CUresult idle = CUDA_ERROR_INVALID_CONTEXT;
  {
    InternalCalls calls(*state);
    if (calls.ok()) idle = OPS_DEBUG_REAL(cuCtxSynchronize)();
  }
  if (idle != CUDA_SUCCESS) {
    DrainFaults(DrainDepth::kPublished);
    return real(address);
  }
  DrainFaults(state->launches == launches ? DrainDepth::kIdle : DrainDepth::kPublished,
              state->context);
  return FreeIntoQuarantine(*state, allocation, ApiName(real.function())) ? CUDA_SUCCESS
                                                                          : kAlreadyFreed;
}

OPS_DEBUG_HOOK(cuMemFree_v2, CUdeviceptr address) {
  if (!ChecksStreamOrder()) return FreeNow(real, address);
  // It waits for all work that may use the block, but not if the block is from a pool of
  // stream-ordered memory (CUDA Driver API, cuMemFree).
  const auto found = Book().FindStart(address);
  std::optional<HostWait> wait;
  if (!found || found->kind != AllocationKind::kStreamOrdered) wait = HostWait::ForAll();
  const CUresult result = FreeNow(real, address);
  if (wait) wait->Done(result);
  if (result == CUDA_SUCCESS) ForgetHostVisible(address);
  return result;
}

namespace {

WorkDescription FreeInStreamOrder(const Allocation& allocation, DriverFunction function) {
  WorkDescription description = InStreamOrder(function);
  description.accesses.push_back(
      {.address = allocation.base, .width_bytes = allocation.size_bytes, .is_write = true});
  return description;
}

// The block stays with us, so the driver's checks would not hear that it is free: work in the
// stream's order that writes to it says the same.
void TellFreedInStreamOrder(const Allocation& allocation, DriverFunction function,
                            CUstream stream) {
  if (!ChecksStreamOrder()) return;
  OrderedWork work(FreeInStreamOrder(allocation, function), stream);
  work.Submitted(ExactChecks() ? OPS_DEBUG_REAL(cuMemsetD8Async)(allocation.base, 0,
                                                                 allocation.size_bytes, stream)
                               : CUDA_SUCCESS);
}

}  // namespace

OPS_DEBUG_HOOK(cuMemFreeAsync, CUdeviceptr address, CUstream stream) {
  Allocation allocation;
  const Freeable freeable = Classify(address, &allocation);
  if (freeable == Freeable::kUnknown) return real(address, stream);
  if (freeable == Freeable::kAlreadyFreed) return kAlreadyFreed;
  const CUstream explicit_stream = ExplicitStream(stream, real.default_stream());
  const ContextPointer state = FindContextState(static_cast<CUcontext>(allocation.context));
  const ContextPointer stream_state = StreamContextState(stream, real.default_stream());
  if (ChecksMemory() && state && state == stream_state && !state->lost &&
      !IsCapturing(explicit_stream)) {
    bool refused = false;
    if (FreeIntoQuarantineInStream(*state, allocation, ApiName(real.function()), explicit_stream,
                                   &refused)) {
      TellFreedInStreamOrder(allocation, real.function(), explicit_stream);
      return CUDA_SUCCESS;
    }
    if (!refused) return kAlreadyFreed;
  }
  OrderedWork work(FreeInStreamOrder(allocation, real.function()), explicit_stream);
  const CUresult result = real(address, stream);
  work.Submitted(result);
  if (result == CUDA_SUCCESS) FreeUnchecked(state.get(), allocation, ApiName(real.function()));
  return result;
}
OPS_DEBUG_HOOK_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync)

}  // namespace ops_debug::interposer
