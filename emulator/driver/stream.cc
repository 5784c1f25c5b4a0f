// Streams: queues of work of one context. Their order is work_scheduler.h's business; here are the
// objects, waiting for them, and what a program can ask of them.
#include "emulator/driver/stream.h"

#include <algorithm>
#include <utility>

#include "emulator/driver/capture.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {
namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

CUresult Create(CUstream* result, unsigned flags, int priority) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto stream = std::make_unique<CUstream_st>();
    stream->context = &context;
    stream->id = kFirstStreamId + device.driver.next_id++;
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    const bool is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->order = std::make_shared<StreamOrder>(&context, is_blocking);
    *result = device.driver.streams.Add(std::move(stream));
    return CUDA_SUCCESS;
  });
}

template <class T, class Read>
CUresult Query(CUstream handle, T* result, Read read) {
  return WithStream(handle, [&](CUctx_st&, CUstream_st& stream) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = read(stream);
    return CUDA_SUCCESS;
  });
}

// Where the stream's work stands, if it may be waited for.
CUresult FindPoints(CUstream handle, std::vector<StreamPoint>* points, CUctx_st** owner) {
  return WithStream(handle, [&](CUctx_st& context, CUstream_st& stream) -> CUresult {
    const CUresult status = RefuseWaiting(stream);
    if (status != CUDA_SUCCESS) return status;
    *points = LatestPoints(context, stream);
    *owner = stream.context;
    return CUDA_SUCCESS;
  });
}

CUresult SubmitHost(CUstream handle, HostOperation host) {
  return InContext([&](Device& device, CUctx_st& context) {
    return Submit(device, context, handle, {.work = host});
  });
}

// The attributes that a stream has.
bool IsStreamAttribute(CUstreamAttrID attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult AfterWait(CUcontext handle) {
  return InDriver([&](Driver& driver) -> CUresult {
    CUctx_st* context = driver.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    FinishWait(*context->device);
    return context->sticky_error;
  });
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuStreamCreate(CUstream* result, unsigned int flags) { return Create(result, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* result, unsigned int flags, int priority) {
  return Create(result, flags, priority);
}

// Work that is still pending goes on; the handle is invalid at once.
CUresult cuStreamDestroy_v2(CUstream handle) {
  return InDriver([&](Driver& driver) -> CUresult {
    const CUstream_st* stream = driver.streams.Find(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ForgetStream(*stream);
    driver.streams.Remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  std::vector<StreamPoint> points;
  CUctx_st* owner = nullptr;
  const CUresult status = FindPoints(handle, &points, &owner);
  if (status != CUDA_SUCCESS) return status;
  WaitForPoints(points);
  return AfterWait(owner);
}

CUresult cuStreamQuery(CUstream handle) {
  std::vector<StreamPoint> points;
  CUctx_st* owner = nullptr;
  const CUresult status = FindPoints(handle, &points, &owner);
  if (status != CUDA_SUCCESS) return status;
  return ArePointsReached(points) ? AfterWait(owner) : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUevent_st* event = device.driver.events.Find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    return Submit(device, context, handle, {.work = EventWaitOperation{event, flags}});
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return SubmitHost(handle, {.callback = callback, .stream = handle, .user_data = user_data});
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SubmitHost(handle, {.function = function, .user_data = user_data});
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return WithStream(handle, [&](CUctx_st&, CUstream_st& stream) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return RefuseAskingForFlags(stream);
  });
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
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, context);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* ordinal) {
  return Query(handle, ordinal,
               [](const CUstream_st& stream) { return stream.context->device->ordinal; });
}

// The priority is kept like the others, which steer caches and waiting: no result depends on them.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue* value) {
  return WithStream(handle, [&](CUctx_st&, CUstream_st& stream) -> CUresult {
    if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
    stream.attributes[attribute] = *value;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      stream.priority = std::clamp(value->priority, kGreatestPriority, kLeastPriority);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return WithStream(handle, [&](CUctx_st&, CUstream_st& stream) -> CUresult {
    if (value == nullptr || !IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
    *value = {};
    const auto found = stream.attributes.find(attribute);
    if (found != stream.attributes.end()) *value = found->second;
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  return WithStream(to_handle, [&](CUctx_st& context, CUstream_st& to) -> CUresult {
    const CUstream_st* from = FindStream(context.device->driver, context, from_handle);
    if (from == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    to.attributes = from->attributes;
    to.priority = from->priority;
    return CUDA_SUCCESS;
  });
}

// Managed memory is visible to the host and all streams at any time; what remains is the order.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                       flags == CU_MEM_ATTACH_SINGLE;
    const auto found = device.driver.allocations.find(address);
    if (!known || found == device.driver.allocations.end() ||
        found->second.kind != AllocationKind::kManaged) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return Submit(device, context, handle, {});
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuStreamSynchronize, ptsz, 1)
OPS_DEBUG_PER_THREAD(cuStreamQuery, ptsz, 1)
OPS_DEBUG_PER_THREAD(cuStreamWaitEvent, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamAddCallback, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuLaunchHostFunc, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamGetFlags, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamGetPriority, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamGetId, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamGetCtx, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamGetCtx_v2, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamGetDevice, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamSetAttribute, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamGetAttribute, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamCopyAttributes, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamAttachMemAsync, ptsz, 4)
OPS_DEBUG_FIRST_ABI(cuStreamDestroy, cuStreamDestroy_v2)
