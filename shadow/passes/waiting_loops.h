// Does a kernel wait for other blocks? A grid barrier made by hand spins on global memory until
// every block has arrived, so it ends only if all blocks are resident together. A twin needs more
// registers than its original; where that costs residency, it must not run in the place of such a
// kernel.
#pragma once

#include <cstdint>

#include "ptx/ir.h"

namespace ops_debug::shadow {

enum class PolledMemory : uint8_t {
  kGlobal,  // or generic: who waits there waits for other blocks, perhaps
  kAny,     // shared memory as well
};

// True if the function holds a loop that does nothing but read such memory (volatile, relaxed,
// acquire or atomic) until the value read ends it. Loops that also read or write other data, as
// work queues do, make progress by themselves.
bool WaitsInLoop(const ptx::Function& function, PolledMemory memory = PolledMemory::kGlobal);

}  // namespace ops_debug::shadow
