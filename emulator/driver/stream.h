// Streams as other files need them.
#pragma once

#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

// body(CUctx_st& current context, CUstream_st&) with the lock held. The stream may belong to
// another context than the current one.
template <class Body>
CUresult WithStream(CUstream handle, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUstream_st* stream = FindStream(device.driver, context, handle);
    return stream != nullptr ? body(context, *stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// To be called by a thread that has waited for work of a context: the context's health.
CUresult AfterWait(CUcontext handle);

}  // namespace ops_debug::emulator
