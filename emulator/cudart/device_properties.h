// Device properties for whichever layout a run-time version gives cudaDeviceProp.
#pragma once

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {

template <class Properties>
CUresult FillProperties(const DriverCalls& driver, Properties* properties, int ordinal) {
  *properties = {};
  CUresult result = driver.cuDeviceGetName(properties->name, sizeof(properties->name), ordinal);
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    const CUresult status = driver.cuDeviceGetAttribute(&value, which, ordinal);
    if (status != CUDA_SUCCESS) result = status;
    return value;
  };
#define OPS_DEBUG_PROPERTY(field, name) properties->field = attribute(CU_DEVICE_ATTRIBUTE_##name);
#include "emulator/cudart/device_properties.inc"
#undef OPS_DEBUG_PROPERTY
  static_assert(sizeof(CUuuid) == sizeof(properties->uuid));
  if (result == CUDA_SUCCESS) {
    result = driver.cuDeviceGetUuid(reinterpret_cast<CUuuid*>(&properties->uuid), ordinal);
  }
  if (result == CUDA_SUCCESS) {
    result = driver.cuDeviceTotalMem(&properties->totalGlobalMem, ordinal);
  }
  return result;
}

template <class Properties>
cudaError_t GetProperties(Properties* properties, int ordinal) {
  if (properties == nullptr) return Report(cudaErrorInvalidValue);
  return WithDriver(
      [&](const DriverCalls& driver) { return FillProperties(driver, properties, ordinal); });
}

}  // namespace ops_debug::emulator::cudart
