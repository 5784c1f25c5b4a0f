// The driver of the CPU device: libcuda.so.1 opened by name, so that whatever stands in front of it
// (the interposer) is used like the real one, and the emulator's way to given addresses.
#pragma once

#include <cuda.h>

#include <string>

#include "replayer/outcome.h"
#include "shadow/abi/emulator_placement.h"

namespace ops_debug::replayer {

// Functions that the replayer calls, each named once; cuda.h maps a name to its current version.
#define OPS_DEBUG_REPLAYER_DRIVER_FUNCTIONS(X) \
  X(cuInit)                                    \
  X(cuDeviceGet)                               \
  X(cuDevicePrimaryCtxRetain)                  \
  X(cuCtxSetCurrent)                           \
  X(cuCtxSynchronize)                          \
  X(cuModuleLoadDataEx)                        \
  X(cuModuleGetFunction)                       \
  X(cuModuleGetGlobal)                         \
  X(cuFuncSetAttribute)                        \
  X(cuMemAlloc)                                \
  X(cuMemHostAlloc)                            \
  X(cuMemcpyHtoD)                              \
  X(cuStreamCreate)                            \
  X(cuStreamWaitEvent)                         \
  X(cuEventCreate)                             \
  X(cuEventRecord)                             \
  X(cuLaunchKernelEx)                          \
  X(cuTensorMapEncodeTiled)                    \
  X(cuGetErrorName)                            \
  X(cuGetErrorString)

struct Driver {
#define OPS_DEBUG_REPLAYER_MEMBER(name) decltype(&::name) name = nullptr;
  OPS_DEBUG_REPLAYER_DRIVER_FUNCTIONS(OPS_DEBUG_REPLAYER_MEMBER)
#undef OPS_DEBUG_REPLAYER_MEMBER
  const shadow::EmulatorPlacement* placement = nullptr;

  // kFailed with "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; kUnsupported if that is
  // what the driver says.
  Outcome Failed(const std::string& call, CUresult result) const;
};

// Binds the functions; the device is not used yet.
Outcome LoadDriver(Driver* driver);

}  // namespace ops_debug::replayer
