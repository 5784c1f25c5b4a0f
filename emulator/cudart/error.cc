// Names and texts of cudaError_t.
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define OPS_DEBUG_RUNTIME_ERROR(code, text) \
  case code:                                \
    return #code;
#define OPS_DEBUG_DRIVER_ERROR(code) \
  case code:                         \
    return #code;
#include "emulator/cudart/error_names.inc"
#undef OPS_DEBUG_DRIVER_ERROR
#undef OPS_DEBUG_RUNTIME_ERROR
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define OPS_DEBUG_RUNTIME_ERROR(code, text) \
  case code:                                \
    return text;
#define OPS_DEBUG_DRIVER_ERROR(code)
#include "emulator/cudart/error_names.inc"
#undef OPS_DEBUG_DRIVER_ERROR
#undef OPS_DEBUG_RUNTIME_ERROR
    default:
      break;
  }
  const DriverCalls* driver = nullptr;
  const char* text = nullptr;
  LoadDriver(&driver);
  if (driver->cuGetErrorString != nullptr &&
      driver->cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS) {
    return text;
  }
  return "unrecognized error code";
}

}  // extern "C"
