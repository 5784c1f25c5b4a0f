// Streams. Work has been done by the time a call returns, so waiting finds nothing to wait for; the
// objects keep what a program can ask of them. Stream capture is not supported: nothing is ever
// capturing.
#include <algorithm>

#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;
// The default streams' ids are fixed; created streams count on from the device's ids behind them.
constexpr uint64_t kLegacyStreamId = 1, kPerThreadStreamId = 2, kFirstStreamId = 16;

CUresult Create(CUstream* result, unsigned flags, int priority) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto stream = std::make_unique<CUstream_st>();
    stream->context = &context;
    stream->id = kFirstStreamId + device.next_id++;
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    *result = device.streams.Add(std::move(stream));
    return CUDA_SUCCESS;
  });
}

// body(Device&, CUctx_st&, const CUstream_st&); for a default stream the last is a description of
// it.
template <class Body>
CUresult WithStream(CUstream handle, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, handle);
    if (status != CUDA_SUCCESS) return status;
    if (const CUstream_st* stream = device.streams.Find(handle)) {
      return body(device, context, *stream);
    }
    const uint64_t id = handle == CU_STREAM_PER_THREAD ? kPerThreadStreamId : kLegacyStreamId;
    return body(device, context, CUstream_st{.context = &context, .id = id});
  });
}

// Stores `value` unless the caller does not want it.
template <class T, class V>
void Give(T* result, V value) {
  if (result != nullptr) *result = value;
}

template <class T, class Read>
CUresult Query(CUstream handle, T* result, Read read) {
  return WithStream(handle, [&](Device&, CUctx_st&, const CUstream_st& stream) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = read(stream);
    return CUDA_SUCCESS;
  });
}

// Runs a host callback outside the lock: it may wait for threads that call the driver.
template <class Call>
CUresult RunOnHost(CUstream handle, Call call) {
  const CUresult status =
      WithStream(handle, [](Device&, CUctx_st&, const CUstream_st&) { return CUDA_SUCCESS; });
  if (status != CUDA_SUCCESS) return status;
  call();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuStreamCreate(CUstream* result, unsigned int flags) { return Create(result, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* result, unsigned int flags, int priority) {
  return Create(result, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return OnDevice([&](Device& device) {
    return device.streams.Remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return WithStream(handle, [](Device& device, CUctx_st&, const CUstream_st&) {
    FinishWait(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return WithStream(handle, [](Device&, CUctx_st&, const CUstream_st&) { return CUDA_SUCCESS; });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  return WithStream(handle, [&](Device& device, CUctx_st&, const CUstream_st&) -> CUresult {
    if (device.events.Find(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const unsigned known = CU_EVENT_WAIT_EXTERNAL;
    return (flags & ~known) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return RunOnHost(handle, [&] { callback(handle, CUDA_SUCCESS, user_data); });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return RunOnHost(handle, [&] { function(user_data); });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return Query(handle, flags, [](const CUstream_st& stream) { return stream.flags; });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return Query(handle, priority, [](const CUstream_st& stream) { return stream.priority; });
}

CUresult cuStreamGetId(CUstream handle,
                       unsigned long long* id) {  // NOLINT(google-runtime-int): ABI
  return Query(handle, id, [](const CUstream_st& stream) { return stream.id; });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return Query(handle, context, [](const CUstream_st& stream) { return stream.context; });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  Give(green, nullptr);
  return Query(handle, context, [](const CUstream_st& stream) { return stream.context; });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return Query(handle, device, [](const CUstream_st&) { return 0; });
}

// The window and policy attributes steer caches and waiting: accepted, without effect.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID, const CUstreamAttrValue* value) {
  return WithStream(handle, [&](Device&, CUctx_st&, const CUstream_st&) {
    return value != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID, CUstreamAttrValue* value) {
  return Query(handle, value, [](const CUstream_st&) { return CUstreamAttrValue{}; });
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream) {
  return WithStream(to, [](Device&, CUctx_st&, const CUstream_st&) { return CUDA_SUCCESS; });
}

// Managed memory is always visible to the host.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned int) {
  return WithStream(handle, [](Device&, CUctx_st&, const CUstream_st&) { return CUDA_SUCCESS; });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return Query(handle, status, [](const CUstream_st&) { return CU_STREAM_CAPTURE_STATUS_NONE; });
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, size_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, const CUgraphEdgeData**,
                                   size_t*) {
  return cuStreamIsCapturing(handle, status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuStreamSynchronize, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamQuery, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamWaitEvent, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamAddCallback, ptsz)
OPS_DEBUG_PER_THREAD(cuLaunchHostFunc, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetFlags, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetPriority, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetId, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetCtx, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetCtx_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetDevice, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamSetAttribute, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetAttribute, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamCopyAttributes, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamAttachMemAsync, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamIsCapturing, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo_v3, ptsz)
OPS_DEBUG_FIRST_ABI(cuStreamDestroy, cuStreamDestroy_v2)
