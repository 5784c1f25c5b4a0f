// Which additions of a loop add to a sum: their operand comes, around the loop, from their own
// result. The sums are the strongly connected components of "adds to what was made by" (Kosaraju
// and Sharir, 1981), with copies between registers as further nodes.
#pragma once

#include <cstdint>
#include <map>

#include "ptx/def_use.h"
#include "ptx/ir.h"

namespace ops_debug::shadow {

struct Accumulator {
  int operand = 0;    // which holds the sum: of add 0 or 1, of fma 2
  bool last = false;  // no later addition of the same round adds to the result
};

// By statement: additions and fused additions of floating point in a loop.
std::map<uint32_t, Accumulator> FindAccumulators(const ptx::Function& function,
                                                 const ptx::DefUse& flow);

}  // namespace ops_debug::shadow
