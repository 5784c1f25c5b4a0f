// Contexts as other files need them.
#pragma once

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// The active primary context, made active if it is not; counts no reference.
CUctx_st* ActivatePrimary(Device& device);

// Frees everything that lives in `context`: modules, streams, events, memory. The handle stays.
void ClearContext(Device& device, CUctx_st& context);

}  // namespace ops_debug::emulator
