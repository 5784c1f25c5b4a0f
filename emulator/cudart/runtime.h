// What every entry point of the run-time stands on: the driver, found as NVIDIA's run-time finds
// it, the primary context, and the thread's last error. CUresult and cudaError_t agree in value
// wherever both name an error.
#pragma once

#include <cuda.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "emulator/driver/abi.h"

namespace ops_debug::emulator::cudart {

// The driver's functions by their names in cuda.h. A function that the driver lacks answers "not
// supported".
struct DriverCalls {
#define OPS_DEBUG_DRIVER_CALL(name, version) PFN_##name##_v##version name = nullptr;
#include "emulator/cudart/driver_calls.inc"
#undef OPS_DEBUG_DRIVER_CALL
};

// Loads the driver and calls cuInit, once. The functions are those for the calling thread's meaning
// of stream 0.
cudaError_t LoadDriver(const DriverCalls** driver);

// The device that the calling thread has chosen (cudaSetDevice).
int& ThreadDevice();

// The primary context of a device, retained once for the process.
cudaError_t RetainPrimary(const DriverCalls& driver, int ordinal, CUcontext* primary);

// Makes the primary context of the thread's device current if the thread has no context.
cudaError_t EnsureContext(const DriverCalls& driver);

// The device that the next call works on.
cudaError_t CurrentDevice(const DriverCalls& driver, int* ordinal);

// cuGetProcAddress_v2 of the loaded driver; nullptr without a driver.
PFN_cuGetProcAddress_v12000 GetProcAddress();

// Remembers a failure for cudaGetLastError; returns `error`.
cudaError_t Report(cudaError_t error);
inline cudaError_t Report(CUresult result) { return Report(static_cast<cudaError_t>(result)); }
void ForgetLastError();

// body(const DriverCalls&) -> CUresult or cudaError_t, with the driver loaded. Nothing throws into
// the program.
template <class Body>
cudaError_t WithDriver(Body body) noexcept {
  try {
    const DriverCalls* driver = nullptr;
    const cudaError_t error = LoadDriver(&driver);
    return Report(error != cudaSuccess ? error : static_cast<cudaError_t>(body(*driver)));
  } catch (...) {
    return Report(cudaErrorMemoryAllocation);
  }
}

// The same with a current context.
template <class Body>
cudaError_t WithContext(Body body) noexcept {
  return WithDriver([&](const DriverCalls& driver) -> cudaError_t {
    const cudaError_t error = EnsureContext(driver);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(body(driver));
  });
}

// cudaMalloc* of nothing succeeds with a null pointer; the driver refuses it.
template <class Allocate>
cudaError_t AllocateInto(void** result, size_t bytes, Allocate allocate) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    *result = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    CUdeviceptr address = 0;
    const CUresult status = allocate(driver, &address);
    if (status == CUDA_SUCCESS) *result = reinterpret_cast<void*>(address);
    return status;
  });
}

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace ops_debug::emulator::cudart
