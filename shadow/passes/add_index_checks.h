// Finds 32-bit index arithmetic that wraps on its way to an address (index_slices.h). Each register
// of the slice gets a 64-bit companion that holds its exact value, kept up beside every definition.
// In front of an access the exact value that was widened into its address must still fit the type
// that it was widened from; if it does not, the index has wrapped, and the exact value and the one
// in use are reported. What is computed for an address that no thread uses is never reported, nor
// is what leaves 32 bits on the way and comes back: only the sum counts.
//
// A leaf whose highest bit is set is a negative number to some programs and a large one to others.
// It counts as negative; a difference that such a leaf has a part in is not reported, for the other
// reading may be right.
//
// Runs before the checks of memory: they skip a bad access, and it is the same access.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

struct IndexPlan {
  uint32_t checked_accesses = 0;  // with an index that may wrap
  uint32_t companion_registers = 0;
};

ptx::Result<IndexPlan> AddIndexChecks(ptx::Module& module, const Twin& twin,
                                      const SourceFrames& frames, std::vector<NumericSite>* sites);

}  // namespace ops_debug::shadow
