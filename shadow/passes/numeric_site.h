// The site of an instruction that is checked for numerical faults.
#pragma once

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// Place and text of any instruction of `original`; what a Site says of memory stays empty.
Site MakeInstructionSite(const ptx::Function& original, const ptx::Instruction& instruction,
                         const SourceFrames& frames);
// The same as a numeric site; the caller adds types and origins.
NumericSite MakeNumericSite(const ptx::Function& original, const ptx::Instruction& instruction,
                            const SourceFrames& frames);

}  // namespace ops_debug::shadow
