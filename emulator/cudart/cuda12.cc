// Functions whose ABI is that of CUDA 12: another layout of cudaDeviceProp, other signatures under
// names that CUDA 13 gave a new meaning, and names that CUDA 13 dropped. The toolkit's header
// declares CUDA 13's, so these carry their exported names as assembler labels.
#include "emulator/cudart/cuda12_properties.h"
#include "emulator/cudart/device_properties.h"
#include "emulator/cudart/runtime.h"

#define OPS_DEBUG_EXPORTED_AS(name) __asm__(#name)

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t GetDeviceProperties12(Cuda12DeviceProperties* properties, int ordinal)
    OPS_DEBUG_EXPORTED_AS(cudaGetDeviceProperties_v2);
cudaError_t MemAdvise12(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int ordinal)
    OPS_DEBUG_EXPORTED_AS(cudaMemAdvise);
cudaError_t MemPrefetchAsync12(const void* pointer, size_t bytes, int ordinal, cudaStream_t stream)
    OPS_DEBUG_EXPORTED_AS(cudaMemPrefetchAsync);
cudaError_t MemPrefetchAsyncPerThread12(const void* pointer, size_t bytes, int ordinal,
                                        cudaStream_t stream)
    OPS_DEBUG_EXPORTED_AS(cudaMemPrefetchAsync_ptsz);
cudaError_t StreamGetCaptureInfo12(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                   cuuint64_t* id, cudaGraph_t* graph,
                                   const cudaGraphNode_t** nodes, size_t* count)
    OPS_DEBUG_EXPORTED_AS(cudaStreamGetCaptureInfo_v2);
cudaError_t StreamGetCaptureInfo12v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     cuuint64_t* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count)
    OPS_DEBUG_EXPORTED_AS(cudaStreamGetCaptureInfo_v3);
cudaError_t ThreadSynchronize12(void) OPS_DEBUG_EXPORTED_AS(cudaThreadSynchronize);
cudaError_t ThreadExit12(void) OPS_DEBUG_EXPORTED_AS(cudaThreadExit);

cudaError_t GetDeviceProperties12(Cuda12DeviceProperties* properties, int ordinal) {
  const cudaError_t error = GetProperties(properties, ordinal);
  if (error != cudaSuccess) return error;
  return WithDriver([&](const DriverCalls& driver) {
    CUresult result = CUDA_SUCCESS;
    const auto attribute = [&](CUdevice_attribute which, int* value) {
      const CUresult status = driver.cuDeviceGetAttribute(value, which, ordinal);
      if (status != CUDA_SUCCESS) result = status;
    };
    attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &properties->clockRate);
    attribute(CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, &properties->deviceOverlap);
    attribute(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, &properties->kernelExecTimeoutEnabled);
    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &properties->computeMode);
    attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &properties->memoryClockRate);
    attribute(CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
              &properties->singleToDoublePrecisionPerfRatio);
    return result;
  });
}

static CUmemLocation LocationOf(int ordinal) {
  CUmemLocation location{};
  const bool is_host = ordinal == cudaCpuDeviceId;
  location.type = is_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = is_host ? 0 : ordinal;
  return location;
}

cudaError_t MemAdvise12(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int ordinal) {
  return WithContext([&](const DriverCalls& driver) {
    const CUmemLocation location = LocationOf(ordinal);
    return driver.cuMemAdvise(Address(pointer), bytes, static_cast<CUmem_advise>(advice), location);
  });
}

cudaError_t MemPrefetchAsync12(const void* pointer, size_t bytes, int ordinal,
                               cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) {
    const CUmemLocation location = LocationOf(ordinal);
    return driver.cuMemPrefetchAsync(Address(pointer), bytes, location, 0, stream);
  });
}

cudaError_t MemPrefetchAsyncPerThread12(const void* pointer, size_t bytes, int ordinal,
                                        cudaStream_t stream) {
  const ops_debug::emulator::ThreadStreamScope scope;
  return MemPrefetchAsync12(pointer, bytes, ordinal, stream);
}

cudaError_t StreamGetCaptureInfo12(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                   cuuint64_t* id, cudaGraph_t* graph,
                                   const cudaGraphNode_t** nodes, size_t* count) {
  return StreamGetCaptureInfo12v3(stream, status, id, graph, nodes, nullptr, count);
}

cudaError_t StreamGetCaptureInfo12v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     cuuint64_t* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                         id, graph, nodes,
                                         reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  });
}

cudaError_t ThreadSynchronize12(void) { return cudaDeviceSynchronize(); }

cudaError_t ThreadExit12(void) { return cudaDeviceReset(); }

}  // extern "C"
