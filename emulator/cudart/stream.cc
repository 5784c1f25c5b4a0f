// Streams and events: the driver's, under the run-time's names.
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

// The driver's types of the same shape.
static_assert(sizeof(CUstreamAttrValue) == sizeof(cudaLaunchAttributeValue));
static_assert(sizeof(CUstreamCaptureStatus) == sizeof(cudaStreamCaptureStatus));
static_assert(sizeof(CUgraphEdgeData) == sizeof(cudaGraphEdgeData));

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamCreateWithPriority(stream, flags, priority);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuStreamDestroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuStreamQuery(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuStreamGetFlags(stream, flags); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuStreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream,
                            unsigned long long* id) {  // NOLINT(google-runtime-int): ABI
  return WithContext([&](const DriverCalls& driver) { return driver.cuStreamGetId(stream, id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* ordinal) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuStreamGetDevice(stream, ordinal); });
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID attribute,
                                   const cudaLaunchAttributeValue* value) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                       reinterpret_cast<const CUstreamAttrValue*>(value));
  });
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaLaunchAttributeID attribute,
                                   cudaLaunchAttributeValue* value) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                       reinterpret_cast<CUstreamAttrValue*>(value));
  });
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuStreamCopyAttributes(to, from); });
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, size_t bytes,
                                     unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamAttachMemAsync(stream, Address(pointer), bytes, flags);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return WithDriver([&](const DriverCalls& driver) {
    return driver.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuEventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuEventDestroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuEventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuEventRecordWithFlags(event, stream, flags);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuEventSynchronize(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuEventQuery(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuEventElapsedTime(milliseconds, start, end);
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaStreamSynchronize, ptsz, 1)
OPS_DEBUG_PER_THREAD(cudaStreamQuery, ptsz, 1)
OPS_DEBUG_PER_THREAD(cudaStreamWaitEvent, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaStreamGetFlags, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamGetPriority, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamGetId, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamGetDevice, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamSetAttribute, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaStreamGetAttribute, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaStreamCopyAttributes, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamAttachMemAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cudaStreamIsCapturing, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaEventRecord, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaEventRecordWithFlags, ptsz, 3)
