// What the program's static initialisers told the run-time: fat binaries, kernels and variables by
// host address.
#pragma once

#include <cstddef>

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {

// The kernel that `function` names: the address of a __global__ function, or a cudaKernel_t itself.
// Loads its fat binary if need be. Errors: cudaErrorInvalidDeviceFunction, or why the code could
// not be loaded.
cudaError_t FindKernel(const DriverCalls& driver, const void* function, CUkernel* kernel);

// The other way round: the host address of the __global__ function whose kernel is `kernel` or
// whose function in the current context is `function`; the handle itself if the program registered
// none.
const void* FindHostFunction(const DriverCalls& driver, CUkernel kernel, CUfunction function);

// Device address and size of the __device__, __constant__ or __managed__ variable at host address
// `symbol`.
cudaError_t FindSymbol(const DriverCalls& driver, const void* symbol, CUdeviceptr* address,
                       size_t* bytes);

}  // namespace ops_debug::emulator::cudart
