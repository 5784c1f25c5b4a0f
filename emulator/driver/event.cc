// Events: a point in a stream and, unless switched off, its time. Elapsed times are host time: they
// tell how long the emulator took.
#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

CUresult Record(CUevent handle, CUstream stream, unsigned flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS) return status;
    CUevent_st* event = device.events.Find(handle);
    if (event == nullptr || event->context != &context) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    event->recorded = true;
    event->time = std::chrono::steady_clock::now();
    return CUDA_SUCCESS;
  });
}

CUresult Wait(CUevent handle, bool finish) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (device.events.Find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (finish) FinishWait(device);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuEventCreate(CUevent* result, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    constexpr unsigned kKnown =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (result == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto event = std::make_unique<CUevent_st>();
    event->context = &context;
    event->flags = flags;
    *result = device.events.Add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return OnDevice([&](Device& device) {
    return device.events.Remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) { return Record(handle, stream, 0); }

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  return Record(handle, stream, flags);
}

// An event that was never recorded counts as reached.
CUresult cuEventQuery(CUevent handle) { return Wait(handle, /*finish=*/false); }

CUresult cuEventSynchronize(CUevent handle) { return Wait(handle, /*finish=*/true); }

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const CUevent_st* start = device.events.Find(start_handle);
    const CUevent_st* end = device.events.Find(end_handle);
    if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool timed = ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0;
    if (!timed || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return CUDA_SUCCESS;
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuEventRecord, ptsz)
OPS_DEBUG_PER_THREAD(cuEventRecordWithFlags, ptsz)
OPS_DEBUG_FIRST_ABI(cuEventDestroy, cuEventDestroy_v2)
