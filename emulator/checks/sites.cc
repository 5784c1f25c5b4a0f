// Text of sites: the instruction as written, its source lines, the variable that it names.
#include "emulator/checks/sites.h"

#include <algorithm>
#include <string_view>
#include <variant>

namespace ops_debug::emulator {
namespace {

constexpr int kMaxInlineDepth = 64;

std::string TextOf(const ptx::Instruction& in, std::string_view source) {
  size_t begin = 0;
  for (uint32_t line = 1; line < in.position.line; ++line) {
    begin = source.find('\n', begin);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  begin += in.position.column > 0 ? in.position.column - 1 : 0;
  if (begin >= source.size()) return {};
  std::string text;
  for (const char c : source.substr(begin, source.find(';', begin) - begin)) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (blank && (text.empty() || text.back() == ' ')) continue;
    text += blank ? ' ' : c;
  }
  return text + ";";
}

SourceLine LineOf(const ptx::Module& module, uint32_t file, uint32_t line, uint32_t column) {
  const ptx::File* const known = module.FindFile(file);
  return {"", known == nullptr ? "" : known->path, line, column};
}

// A `.loc` names the place that it was inlined at; the nearest earlier `.loc` of that place
// continues the chain (PTX ISA 9.0, 11.5).
std::vector<SourceLine> FramesOf(const ptx::Module& module, const ptx::Function& function,
                                 uint32_t loc) {
  std::vector<SourceLine> frames;
  for (int depth = 0; loc != 0 && loc < function.locs.size() && depth < kMaxInlineDepth; ++depth) {
    const ptx::Loc& place = function.locs[loc];
    frames.push_back(LineOf(module, place.file, place.line, place.column));
    if (place.inlined_at_file == 0) break;
    uint32_t caller = loc - 1;
    for (; caller > 0; --caller) {
      const ptx::Loc& candidate = function.locs[caller];
      if (candidate.file == place.inlined_at_file && candidate.line == place.inlined_at_line &&
          candidate.column == place.inlined_at_column)
        break;
    }
    if (caller == 0) {
      frames.push_back(
          LineOf(module, place.inlined_at_file, place.inlined_at_line, place.inlined_at_column));
      break;
    }
    loc = caller;
  }
  return frames;
}

void FindVariable(const Program::Impl& program, const ptx::Instruction& in, Site& site) {
  for (const ptx::Operand& operand : in.operands) {
    if (!operand.IsAddress() || operand.children.empty()) continue;
    const ptx::Operand& base = operand.children[0];
    if (base.kind != ptx::Operand::Kind::kSymbol) continue;
    const auto found = program.module_symbols.find(base.text);
    site.variable = base.text;
    if (found == program.module_symbols.end()) return;
    site.variable_bytes = found->second.kind == Symbol::Kind::kShared
                              ? program.shared_variables[found->second.value].size_bytes
                              : found->second.size_bytes;
    return;
  }
}

}  // namespace

const ptx::Instruction* InstructionAt(const ptx::Function& function, const SourcePlace& place) {
  for (const ptx::Statement& statement : function.body) {
    const auto* const in = std::get_if<ptx::Instruction>(&statement);
    if (in != nullptr && in->position.line == place.ptx_line &&
        in->position.column == place.ptx_column)
      return in;
  }
  return nullptr;
}

Sites::Sites() { sites_.emplace_back(); }

SiteId Sites::Of(const Program::Impl& program, const Function& function, uint32_t statement) {
  if (statement >= function.statements.size()) return kNoSite;
  if (function.sites.empty()) function.sites.resize(function.statements.size(), kNoSite);
  SiteId& id = function.sites[statement];
  if (id != kNoSite) return id;
  id = static_cast<SiteId>(sites_.size());
  Site& site = sites_.emplace_back();
  const SourcePlace& place = function.statements[statement];
  const ptx::Function& source = program.Source(function);
  site.function = function.name;
  site.ptx_line = place.ptx_line;
  site.ptx_column = place.ptx_column;
  site.frames = FramesOf(program.module, source, place.loc);
  if (const ptx::Instruction* const in = InstructionAt(source, place)) {
    site.instruction = TextOf(*in, program.module.source());
    FindVariable(program, *in, site);
  }
  return id;
}

shadow::EmulatorSite ExportSite(const Site& site, uint32_t access, uint32_t space,
                                std::vector<shadow::EmulatorFrame>& frames) {
  frames.clear();
  for (const SourceLine& line : site.frames) {
    frames.push_back({line.function.empty() ? nullptr : line.function.c_str(), line.file.c_str(),
                      line.line, line.column});
  }
  shadow::EmulatorSite out{};
  out.function = site.function.c_str();
  out.instruction = site.instruction.c_str();
  out.ptx_line = site.ptx_line;
  out.access_bytes = site.access_bytes;
  out.access = access;
  out.space = space;
  out.frames = frames.data();
  out.frame_count = frames.size();
  out.variable = site.variable.empty() ? nullptr : site.variable.c_str();
  out.variable_bytes = site.variable_bytes;
  return out;
}

}  // namespace ops_debug::emulator
