// A site is a copy of everything, because it outlives the module's text.
#include "shadow/passes/numeric_site.h"

#include <string>

#include "ptx/printer.h"

namespace ops_debug::shadow {

Site MakeInstructionSite(const ptx::Function& original, const ptx::Instruction& instruction,
                         const SourceFrames& frames) {
  Site site;
  site.function = std::string(original.name);
  site.ptx_line = instruction.position.line;
  site.instruction = ptx::PrintInstruction(instruction);
  site.frames = frames.Of(original, instruction.loc);
  return site;
}

NumericSite MakeNumericSite(const ptx::Function& original, const ptx::Instruction& instruction,
                            const SourceFrames& frames) {
  NumericSite site;
  site.site = MakeInstructionSite(original, instruction, frames);
  return site;
}

}  // namespace ops_debug::shadow
