// Functions whose ABI is that of CUDA 13 alone.
#include "emulator/cudart/device_properties.h"
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

// The driver's struct of the same shape.
static_assert(sizeof(CUmemLocation) == sizeof(cudaMemLocation));

namespace {

CUmemLocation ToDriver(const cudaMemLocation& location) {
  CUmemLocation result{};
  result.type = static_cast<CUmemLocationType>(location.type);
  result.id = location.id;
  return result;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  return GetProperties(properties, ordinal);
}

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemAdvise(Address(pointer), bytes, static_cast<CUmem_advise>(advice),
                              ToDriver(location));
  });
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation location,
                                 unsigned int flags, cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPrefetchAsync(Address(pointer), bytes, ToDriver(location), flags, stream);
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id,  // NOLINT(google-runtime-int): ABI
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return WithContext([&](const DriverCalls& driver) {
    cuuint64_t capture = 0;
    const CUresult result = driver.cuStreamGetCaptureInfo(
        stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &capture, graph, dependencies,
        reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    if (id != nullptr) *id = capture;
    return result;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaMemPrefetchAsync, ptsz, 5)
OPS_DEBUG_PER_THREAD(cudaStreamGetCaptureInfo, ptsz, 7)
