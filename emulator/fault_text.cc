// Texts of launch errors. See fault_text.h.
#include "emulator/fault_text.h"

#include <string>
#include <string_view>

namespace ops_debug::emulator {
namespace {

std::string_view CodeName(LaunchError::Code code) {
  switch (code) {
    case LaunchError::Code::kIllegalAddress:
      return "illegal address";
    case LaunchError::Code::kMisalignedAddress:
      return "misaligned address";
    case LaunchError::Code::kInvalidAddressSpace:
      return "invalid address space";
    case LaunchError::Code::kIllegalInstruction:
      return "illegal instruction";
    case LaunchError::Code::kUnsupportedInstruction:
      return "unsupported instruction";
    case LaunchError::Code::kTrap:
      return "trap";
    case LaunchError::Code::kAssert:
      return "assertion failed";
    case LaunchError::Code::kInvalidProgramCounter:
      return "invalid program counter";
    case LaunchError::Code::kLaunchFailure:
      return "launch failure";
    case LaunchError::Code::kDeadlock:
      return "deadlock";
    case LaunchError::Code::kInstructionLimit:
      return "instruction limit";
    case LaunchError::Code::kHostWait:
      return "wait for the host";
  }
  return "error";
}

std::string Triple(uint32_t x, uint32_t y, uint32_t z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

// The instruction as written, blanks collapsed.
std::string InstructionText(std::string_view source, const SourcePlace& place) {
  size_t begin = 0;
  for (uint32_t line = 1; line < place.ptx_line; ++line) {
    begin = source.find('\n', begin);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  begin += place.ptx_column > 0 ? place.ptx_column - 1 : 0;
  if (begin >= source.size()) return {};
  const std::string_view text = source.substr(begin, source.find(';', begin) - begin);
  std::string result;
  for (char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (blank && (result.empty() || result.back() == ' ')) continue;
    result += blank ? ' ' : c;
  }
  return result + ";";
}

std::string DescribeThread(const Warp& warp, uint32_t lane) {
  return Triple(warp.thread_index[0][lane], warp.thread_index[1][lane], warp.thread_index[2][lane]);
}

std::string FileAndLine(const Program::Impl& program, uint32_t file_number, uint32_t line) {
  const ptx::File* file = program.module.FindFile(file_number);
  return (file == nullptr ? "file " + std::to_string(file_number) : file->path) + ":" +
         std::to_string(line);
}

// The place of an inlined call may lie in a function that was itself inlined: an earlier .loc of
// that place says where. Follows them to the function that the compiler kept.
const ptx::Loc& OutermostCall(const std::vector<ptx::Loc>& locs, size_t from) {
  const ptx::Loc* call = &locs[from];
  for (size_t at = from; at-- > 1;) {
    const ptx::Loc& outer = locs[at];
    if (outer.inlined_at_file != 0 && outer.file == call->inlined_at_file &&
        outer.line == call->inlined_at_line && outer.column == call->inlined_at_column)
      call = &outer;
  }
  return *call;
}

}  // namespace

std::string DescribePlace(const Program::Impl& program, const Function& function,
                          uint32_t statement) {
  if (statement >= function.statements.size()) return "function " + function.name;
  const SourcePlace& place = function.statements[statement];
  const ptx::Function& source = program.Source(function);
  std::string text = "`" + InstructionText(program.module.source(), place) + "` (PTX line " +
                     std::to_string(place.ptx_line);
  if (place.loc > 0 && place.loc < source.locs.size()) {
    const ptx::Loc& loc = source.locs[place.loc];
    text += ", " + FileAndLine(program, loc.file, loc.line);
    if (loc.inlined_at_file != 0) {
      const ptx::Loc& outermost = OutermostCall(source.locs, place.loc);
      text += " inlined at " +
              FileAndLine(program, outermost.inlined_at_file, outermost.inlined_at_line);
    }
  }
  return text + ")";
}

std::string DescribeFault(const Launch& launch, const Block& block, const Fault& fault) {
  const Program::Impl& program = *launch.program;
  const std::string& kernel = program.functions[launch.kernel->function]->name;
  std::string text(CodeName(fault.code));
  text += " in kernel " + kernel;
  if (fault.has_place && fault.function != nullptr) {
    if (fault.function->name != kernel) text += ", function " + fault.function->name + ",";
    text += " at " + DescribePlace(program, *fault.function, fault.statement);
  }
  text += ", block " + Triple(block.index[0], block.index[1], block.index[2]);
  if (fault.has_place) text += ", thread " + DescribeThread(*block.warps[fault.warp], fault.lane);
  return text + ": " + fault.text;
}

}  // namespace ops_debug::emulator
