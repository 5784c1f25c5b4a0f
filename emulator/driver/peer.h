// Access of one device to the memory of another.
#pragma once

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// Ends all peer access from and to `context`.
void ForgetPeer(Driver& driver, CUctx_st& context);

}  // namespace ops_debug::emulator
