// A site is a copy of everything, because it outlives the module's text.
#include "shadow/passes/access_site.h"

#include <string>

#include "ptx/printer.h"

namespace ops_debug::shadow {
namespace {

AccessSpace SpaceOfSymbol(std::string_view space, AccessSpace otherwise) {
  if (space == ".shared") return AccessSpace::kShared;
  if (space == ".local") return AccessSpace::kLocal;
  if (space == ".global") return AccessSpace::kGlobal;
  return otherwise;
}

}  // namespace

Site MakeSite(const ptx::Function& original, const ptx::Instruction& instruction,
              const MemoryAccess& access, const Provenance& provenance, const Value& value,
              uint64_t array_bytes, std::span<const ptx::ParameterLayout> parameters,
              const SourceFrames& frames) {
  Site site;
  site.function = std::string(original.name);
  site.kind = access.kind;
  site.space = access.space;
  site.access_bytes = access.copy_bytes != 0 ? access.copy_bytes : access.bytes;
  site.ptx_line = instruction.position.line;
  site.instruction = ptx::PrintInstruction(instruction);
  site.frames = frames.Of(original, instruction.loc);
  if (value.origin == Origin::kParameter) {
    site.parameter_offset = static_cast<int32_t>(value.id);
    for (size_t i = 0; i < parameters.size(); i++) {
      if (value.id >= parameters[i].offset_bytes &&
          value.id < parameters[i].offset_bytes + parameters[i].size_bytes) {
        site.parameter_index = static_cast<int32_t>(i);
      }
    }
  }
  if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion) {
    const AddressedSymbol& symbol = provenance.symbols()[value.id];
    site.space = SpaceOfSymbol(symbol.space, site.space);
    site.variable_bytes = array_bytes;
    site.variable = value.origin == Origin::kSymbol ? std::string(symbol.name) : "";
  }
  return site;
}

}  // namespace ops_debug::shadow
