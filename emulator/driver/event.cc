// Events: a point in a stream and, unless switched off, the time when the stream got there. Times
// are host time: they tell how long the emulator took.
#include "emulator/driver/capture.h"
#include "emulator/driver/stream.h"

namespace ops_debug::emulator {
namespace {

CUresult Record(CUevent handle, CUstream stream_handle, unsigned flags) {
  return WithStream(stream_handle, [&](CUctx_st& context, CUstream_st& stream) -> CUresult {
    CUevent_st* event = context.device->driver.events.Find(handle);
    if (event == nullptr || event->context != stream.context) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    return Submit(*context.device, context, stream_handle,
                  {.work = EventRecordOperation{.event = event, .flags = flags}});
  });
}

// The latest recording of the event, if it may be waited for; nullptr: never recorded, which counts
// as reached.
CUresult FindMark(CUevent handle, std::shared_ptr<EventMark>* mark, CUcontext* owner) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const CUevent_st* event = device.driver.events.Find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *mark = event->mark;
    *owner = event->context;
    return RefuseWaiting(*event);
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

// CU_EVENT_BLOCKING_SYNC changes how a thread waits on a GPU; here it always sleeps.
CUresult cuEventCreate(CUevent* result, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    constexpr unsigned kKnown =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (result == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto event = std::make_unique<CUevent_st>();
    event->context = &context;
    event->flags = flags;
    *result = device.driver.events.Add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return InDriver([&](Driver& driver) -> CUresult {
    const CUevent_st* event = driver.events.Find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ForgetEvent(*event);
    driver.events.Remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) { return Record(handle, stream, 0); }

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  return Record(handle, stream, flags);
}

CUresult cuEventQuery(CUevent handle) {
  std::shared_ptr<EventMark> mark;
  CUcontext owner = nullptr;
  const CUresult status = FindMark(handle, &mark, &owner);
  if (status != CUDA_SUCCESS || mark == nullptr) return status;
  return ArePointsReached({mark->point}) ? AfterWait(owner) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  std::shared_ptr<EventMark> mark;
  CUcontext owner = nullptr;
  const CUresult status = FindMark(handle, &mark, &owner);
  if (status != CUDA_SUCCESS || mark == nullptr) return status;
  WaitForPoints({mark->point});
  return AfterWait(owner);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  std::shared_ptr<EventMark> marks[2];
  const CUresult status = InContext([&](Device& device, CUctx_st&) -> CUresult {
    const CUevent_st* events[] = {device.driver.events.Find(start_handle),
                                  device.driver.events.Find(end_handle)};
    for (int i = 0; i < 2; ++i) {
      const CUevent_st* event = events[i];
      if (event == nullptr || event->mark == nullptr ||
          (event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
      }
      marks[i] = event->mark;
    }
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return marks[0]->context->device == marks[1]->context->device ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_HANDLE;
  });
  if (status != CUDA_SUCCESS) return status;
  if (!ArePointsReached({marks[0]->point, marks[1]->point})) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(marks[1]->time - marks[0]->time).count();
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuEventRecord, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuEventRecordWithFlags, ptsz, 3)
OPS_DEBUG_FIRST_ABI(cuEventDestroy, cuEventDestroy_v2)
