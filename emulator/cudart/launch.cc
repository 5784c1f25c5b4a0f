// Launches. `kernel<<<grid, block, shared, stream>>>(...)` pushes the configuration, and the stub
// that nvcc made for the kernel pops it and calls __cudaLaunchKernel (CUDA 13) or cudaLaunchKernel
// (before).
#include <memory>

#include "emulator/cudart/launch_config.h"
#include "emulator/cudart/registry.h"
#include "emulator/cudart/runtime.h"
#include "emulator/driver/thread_stack.h"

namespace ops_debug::emulator::cudart {
namespace {

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// Depth: a kernel's arguments may launch kernels while they are evaluated.
constinit thread_local ThreadStack<CallConfiguration, 64> pushed_configurations;

bool IsShapePossible(const dim3& grid, const dim3& block) {
  const auto within = [](const dim3& value, unsigned x, unsigned y, unsigned z) {
    return value.x != 0 && value.y != 0 && value.z != 0 && value.x <= x && value.y <= y &&
           value.z <= z;
  };
  return within(grid, 0x7fffffff, 65535, 65535) && within(block, 1024, 1024, 64) &&
         size_t(block.x) * block.y * block.z <= 1024;
}

// The driver knows one error for wrong arguments; the run-time has a second one for impossible
// shapes.
cudaError_t Refine(CUresult result, const dim3& grid, const dim3& block) {
  if (result == CUDA_ERROR_INVALID_VALUE && !IsShapePossible(grid, block)) {
    return cudaErrorInvalidConfiguration;
  }
  return static_cast<cudaError_t>(result);
}

cudaError_t Launch(CUkernel kernel, const DriverCalls& driver, const dim3& grid, const dim3& block,
                   void** arguments, size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > 0xffffffffu) return cudaErrorInvalidValue;
  return Refine(
      driver.cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                            block.y, block.z, unsigned(shared_bytes), stream, arguments, nullptr),
      grid, block);
}

struct Callback {
  cudaStreamCallback_t function;
  void* user_data;
};

void CUDA_CB CallBack(CUstream stream, CUresult status, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(stream, static_cast<cudaError_t>(status), callback->user_data);
}

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

// nvcc's stubs use these two; declared nowhere but in its internal headers.

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st* stream) {
  if (pushed_configurations.Push({grid, block, shared_bytes, stream})) return 0;
  return unsigned(Report(cudaErrorMemoryAllocation));
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (pushed_configurations.Empty()) return Report(cudaErrorMissingConfiguration);
  const CallConfiguration& top = pushed_configurations.Top();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  pushed_configurations.Pop();
  return cudaSuccess;
}

// `kernel` came from __cudaGetKernel; null if that failed, whose error then stands.
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  if (kernel == nullptr) {
    const cudaError_t error = cudaPeekAtLastError();
    return Report(error != cudaSuccess ? error : cudaErrorInvalidDeviceFunction);
  }
  return WithContext([&](const DriverCalls& driver) {
    return Launch(kernel, driver, grid, block, arguments, shared_bytes, stream);
  });
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t shared_bytes, cudaStream_t stream) {
  const ops_debug::emulator::ThreadStreamScope scope;
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(driver, function, &kernel);
    if (error != cudaSuccess) return error;
    return Launch(kernel, driver, grid, block, arguments, shared_bytes, stream);
  });
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes,
                                        cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(driver, function, &kernel);
    if (error != cudaSuccess) return error;
    return Refine(driver.cuLaunchCooperativeKernel(reinterpret_cast<CUfunction>(kernel), grid.x,
                                                   grid.y, grid.z, block.x, block.y, block.z,
                                                   unsigned(shared_bytes), stream, arguments),
                  grid, block);
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  if (config == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(driver, function, &kernel);
    if (error != cudaSuccess) return error;
    const dim3& grid = config->gridDim;
    const dim3& block = config->blockDim;
    const CUlaunchConfig converted = DriverConfig(*config);
    return Refine(driver.cuLaunchKernelEx(&converted, reinterpret_cast<CUfunction>(kernel),
                                          arguments, nullptr),
                  grid, block);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuLaunchHostFunc(stream, function, user_data);
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                  void* user_data, unsigned int flags) {
  if (function == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    auto callback = std::make_unique<Callback>(Callback{function, user_data});
    const CUresult result = driver.cuStreamAddCallback(stream, &CallBack, callback.get(), flags);
    if (result == CUDA_SUCCESS) callback.release();  // NOLINT: CallBack owns it
    return result;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaLaunchKernel, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaLaunchCooperativeKernel, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaLaunchKernelExC, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaLaunchHostFunc, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaStreamAddCallback, ptsz, 4)
