// Boxes of memory and arrays as the two APIs describe them.
#pragma once

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {

// Errors: cudaErrorInvalidMemcpyDirection, cudaErrorInvalidPitchValue, cudaErrorInvalidValue.
// Extents and positions of arrays are in elements, those of memory in bytes.
cudaError_t ToDriver(const DriverCalls& driver, const cudaMemcpy3DParms& parameters,
                     CUDA_MEMCPY3D* copy);
cudaMemcpy3DParms FromDriver(const DriverCalls& driver, const CUDA_MEMCPY3D& copy);

}  // namespace ops_debug::emulator::cudart
