// Does a kernel wait for other blocks? A grid barrier made by hand spins on global memory until
// every block has arrived, so it ends only if all blocks are resident together. A twin needs more
// registers than its original; where that costs residency, it must not run in the place of such a
// kernel.
#pragma once

#include "ptx/ir.h"

namespace ops_debug::shadow {

// True if the function holds a loop that does nothing but read global memory (volatile, relaxed,
// acquire or atomic) until the value read ends it. Loops that also read or write other data, as
// work queues do, make progress by themselves.
bool WaitsInLoop(const ptx::Function& function);

}  // namespace ops_debug::shadow
