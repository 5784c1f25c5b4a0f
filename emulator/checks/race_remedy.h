// Where a barrier would order two accesses of a block's or a warp's threads.
#pragma once

#include "emulator/checks/sites.h"
#include "ptx/ir.h"

namespace ops_debug::emulator {

struct Remedy {
  SourceLine after, before;  // line 0: no such place is known
};

// A barrier helps if it stands on every path without one from the first to the second access (or
// the other way round, in a loop), and may stand only where all threads come: where a barrier
// stands already under the same conditions, or where every thread passes that enters the function.
// Both sites are in `function`.
Remedy FindRemedy(const ptx::Function& function, const Site& first, const Site& second,
                  bool within_warp);

}  // namespace ops_debug::emulator
