// The CUDA driver as an ordinary program sees it: libcuda.so.1 opened by name, so that whatever
// stands in front of it (an interposer, a CPU device) is used like the real one.
#pragma once

#include <cuda.h>

#include <string>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

// Functions that the runner calls, each named once. cuda.h maps a name to its current ABI version
// (cuMemAlloc -> cuMemAlloc_v2), and so does the look-up.
#define OPS_DEBUG_RUNNER_DRIVER_FUNCTIONS(X) \
  X(cuInit)                                  \
  X(cuDeviceGetCount)                        \
  X(cuDeviceGet)                             \
  X(cuDeviceGetName)                         \
  X(cuDeviceGetAttribute)                    \
  X(cuDevicePrimaryCtxRetain)                \
  X(cuDevicePrimaryCtxRelease)               \
  X(cuCtxSetCurrent)                         \
  X(cuCtxSynchronize)                        \
  X(cuModuleLoadDataEx)                      \
  X(cuModuleUnload)                          \
  X(cuModuleGetFunction)                     \
  X(cuFuncSetAttribute)                      \
  X(cuMemAlloc)                              \
  X(cuMemFree)                               \
  X(cuMemcpyHtoD)                            \
  X(cuMemcpyDtoH)                            \
  X(cuLaunchKernel)                          \
  X(cuGetErrorName)                          \
  X(cuGetErrorString)

struct Driver {
#define OPS_DEBUG_RUNNER_MEMBER(name) decltype(&::name) name = nullptr;
  OPS_DEBUG_RUNNER_DRIVER_FUNCTIONS(OPS_DEBUG_RUNNER_MEMBER)
#undef OPS_DEBUG_RUNNER_MEMBER
  void* library = nullptr;

  // "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (invalid argument)".
  std::string Describe(const char* call, CUresult result) const;
};

// Error: no driver, or one that lacks a function.
absl::StatusOr<Driver> LoadDriver();

}  // namespace ops_debug::runner
