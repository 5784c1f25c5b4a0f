// Puts a check before every memory access of a twin: in bounds, alive, aligned.
//
// Each access takes the cheapest test that is right for it (design: "Memory checking"):
//   static     constant offset into a declared array: decided here, nothing is emitted
//   parameter  base is a pointer parameter: compare with the bounds that the host wrote into the
//   launch parameter symbol     base is a declared shared, local, global or constant array: compare
//   with its address and size shadow     anything else in global or generic space: one look-up in
//   shadow memory
// The inline part ends in one branch that is not taken; slow blocks at the end of the function call
// __ops_debug_check, which decides, reports and says whether the access is to be skipped.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

struct MemoryChecks {
  std::vector<BoundsSlot> slots;  // of an entry's launch parameter
  uint32_t checked_accesses = 0;
  std::vector<UncheckedAccess> unchecked;
};

// Instruments `twin` in place and appends its sites to `sites`. `reserved_bytes` of the parameter
// space of an entry are left to other checks.
ptx::Result<MemoryChecks> AddMemoryChecks(ptx::Module& module, const Twin& twin,
                                          const SourceFrames& frames, uint32_t reserved_bytes,
                                          std::vector<Site>* sites);

}  // namespace ops_debug::shadow
