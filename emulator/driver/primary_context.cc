// Primary contexts: one per device, shared by all run-time users of the process.
#include "emulator/driver/context.h"

namespace ops_debug::emulator {

CUctx_st* ActivatePrimary(Device& device) {
  if (device.primary == nullptr) device.primary = NewContext(device, device.primary_flags, true);
  return device.primary;
}

namespace {

// The device's primary context; nullptr if it is not active. Does not keep the lock.
CUresult FindPrimary(CUdevice ordinal, CUcontext* primary) {
  return OnDevice(ordinal, [&](Device& device) {
    *primary = device.primary;
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* result, CUdevice ordinal) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = ActivatePrimary(device);
    ++device.primary_references;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  CUcontext last = nullptr;
  const CUresult status = OnDevice(ordinal, [&](Device& device) -> CUresult {
    if (device.primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.primary_references == 0) last = device.primary;
    return CUDA_SUCCESS;
  });
  if (last == nullptr) return status;
  return AfterDraining(last, [](Driver& driver, CUctx_st& context) -> CUresult {
    // Another thread may have retained it meanwhile.
    if (context.device->primary_references != 0) return CUDA_SUCCESS;
    ClearContext(context);
    context.device->primary = nullptr;
    driver.contexts.Remove(&context);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  CUcontext primary = nullptr;
  const CUresult status = FindPrimary(ordinal, &primary);
  if (status != CUDA_SUCCESS || primary == nullptr) return status;
  return AfterDraining(primary, [](Driver&, CUctx_st& context) {
    // The handle stays valid: whoever retained it goes on with a fresh context.
    ClearContext(context);
    context.sticky_error = CUDA_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    if ((flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    device.primary_flags = flags;
    if (device.primary != nullptr) device.primary->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = device.primary_flags;
    *active = device.primary != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)
OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)
OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)
