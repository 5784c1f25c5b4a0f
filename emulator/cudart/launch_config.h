// Launch configurations of the run-time API as the driver takes them.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace ops_debug::emulator::cudart {

// `config`'s attributes stay the caller's.
inline CUlaunchConfig DriverConfig(const cudaLaunchConfig_t& config) {
  // The two attribute types are one layout under two names.
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  static_assert(offsetof(CUlaunchAttribute, value) == offsetof(cudaLaunchAttribute, val));
  CUlaunchConfig converted{};
  converted.gridDimX = config.gridDim.x;
  converted.gridDimY = config.gridDim.y;
  converted.gridDimZ = config.gridDim.z;
  converted.blockDimX = config.blockDim.x;
  converted.blockDimY = config.blockDim.y;
  converted.blockDimZ = config.blockDim.z;
  converted.sharedMemBytes = unsigned(config.dynamicSmemBytes);
  converted.hStream = config.stream;
  converted.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  converted.numAttrs = config.numAttrs;
  return converted;
}

}  // namespace ops_debug::emulator::cudart
