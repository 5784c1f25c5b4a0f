// Finds instructions of a twin whose results are exceptional or lose what their operands held
// (precision_abi.h lists the kinds). Runs behind the checks of memory and leaves alone what other
// passes added.
//
// The inline part tests groups: the instructions of a basic block are gathered, and one branch,
// that is not taken, asks about all of them. Where the result of an instruction goes into another
// one of the group that cannot lose an infinity or NaN (sums, products, roots, the accumulator of a
// matrix instruction), only the last one is tested: a chain of fused multiply-adds costs one
// comparison. Behind the branch each one is asked by itself, with its operands; registers that are
// overwritten before are copied. Groups are small, because operands live until the branch.
//
//   result   infinite or NaN, of all arithmetic, roots, exponentials, and matrix instructions
//   operands NaN of minimum, maximum and comparisons; infinite divisors; what does not fit into the
//            type that a conversion makes
//   stores   to global memory, of what is infinite or NaN: where it leaves the kernel
//   zero     of products, quotients and exponentials
//   sums     that stand still (accumulators.h): halves at every addition, f32 once per round
//
// Comparisons that ask for NaN are no fault. wgmma's results are asked where they are used.
// Not seen: sums that atomics make in memory; halves that are stored as integers.
#pragma once

#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// With Checks::precision_trace every conversion and difference is measured, too.
ptx::Result<PrecisionPlan> AddPrecisionChecks(ptx::Module& module, const Twin& twin,
                                              const Checks& checks, const SourceFrames& frames,
                                              std::vector<NumericSite>* sites);

}  // namespace ops_debug::shadow
