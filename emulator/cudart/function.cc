// Attributes and occupancy of kernels.
#include "emulator/cudart/launch_config.h"
#include "emulator/cudart/registry.h"
#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {
namespace {

// body(const DriverCalls&, CUkernel) for the kernel that `function` names.
template <class Body>
cudaError_t WithKernel(const void* function, Body body) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(driver, function, &kernel);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(body(driver, kernel));
  });
}

cudaError_t MaxActiveBlocks(int* blocks, const void* function, int block_threads,
                            size_t dynamic_bytes, unsigned flags) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, reinterpret_cast<CUfunction>(kernel), block_threads, dynamic_bytes, flags);
  });
}

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* result, const void* function) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    CUresult status = CUDA_SUCCESS;
    const auto get = [&](CUfunction_attribute attribute) {
      int value = 0;
      const CUresult s = driver.cuKernelGetAttribute(&value, attribute, kernel, 0);
      if (s != CUDA_SUCCESS) status = s;
      return value;
    };
    *result = {};
    result->sharedSizeBytes = size_t(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    result->constSizeBytes = size_t(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
    result->localSizeBytes = size_t(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    result->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    result->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    result->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    result->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    result->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
    result->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    result->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    result->clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
    result->requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
    result->requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
    result->requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
    result->nonPortableClusterSizeAllowed =
        get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    result->clusterSchedulingPolicyPreference =
        get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
    return status;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                       0);
  });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int ordinal) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel,
                                       ordinal);
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(config), 0);
  });
}

// Bank width has had no effect since compute capability 5.0.
cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig) {
  return WithKernel(function, [](const DriverCalls&, CUkernel) { return CUDA_SUCCESS; });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuKernelGetName(name, kernel);
  });
}

cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset,
                                 size_t* bytes) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuKernelGetParamInfo(kernel, index, offset, bytes);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_threads, size_t dynamic_bytes) {
  return MaxActiveBlocks(blocks, function, block_threads, dynamic_bytes, 0);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int block_threads,
                                                                   size_t dynamic_bytes,
                                                                   unsigned int flags) {
  return MaxActiveBlocks(blocks, function, block_threads, dynamic_bytes, flags);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, const void* function,
                                                 const cudaLaunchConfig_t* config) {
  if (config == nullptr) return Report(cudaErrorInvalidValue);
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    const CUlaunchConfig converted = DriverConfig(*config);
    return driver.cuOccupancyMaxPotentialClusterSize(blocks, reinterpret_cast<CUfunction>(kernel),
                                                     &converted);
  });
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
  if (config == nullptr) return Report(cudaErrorInvalidValue);
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    const CUlaunchConfig converted = DriverConfig(*config);
    return driver.cuOccupancyMaxActiveClusters(clusters, reinterpret_cast<CUfunction>(kernel),
                                               &converted);
  });
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function,
                                                      int blocks, int block_threads) {
  return WithKernel(function, [&](const DriverCalls& driver, CUkernel kernel) {
    return driver.cuOccupancyAvailableDynamicSMemPerBlock(
        bytes, reinterpret_cast<CUfunction>(kernel), blocks, block_threads);
  });
}

}  // extern "C"
