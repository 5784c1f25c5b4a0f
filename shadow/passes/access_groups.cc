// Lists of instructions rather than rules: an opcode that no list knows neither moves nor is copied
// with harm.
#include "shadow/passes/access_groups.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

constexpr std::array<std::string_view, 22> kEnders = {
    "bra",        "brx",         "call",       "ret",
    "exit",       "trap",        "brkpt",      "bar",
    "barrier",    "shfl",        "vote",       "match",
    "activemask", "redux",       "elect",      "griddepcontrol",
    "mbarrier",   "wgmma",       "setmaxnreg", "nanosleep",
    "pmevent",    "stackrestore"};

constexpr std::array<std::string_view, 21> kPure = {
    "mov", "add", "sub", "mul",  "mad",  "shl",  "shr", "and", "or",  "xor", "not",
    "neg", "abs", "cvt", "cvta", "selp", "setp", "min", "max", "bfe", "lop3"};

// Special registers that hold one value for the whole life of a thread.
constexpr std::array<std::string_view, 6> kConstantRegisters = {"%tid",    "%ntid",   "%ctaid",
                                                                "%nctaid", "%laneid", "WARP_SZ"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

bool EndsGroup(const ptx::Instruction& instruction) {
  return Contains(kEnders, instruction.opcode) || instruction.Has(".sync") ||
         instruction.Has(".aligned") || instruction.Has(".bulk");
}

bool IsMovable(const ptx::Instruction& instruction) {
  if (instruction.Is("ld")) {
    return std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                       [](std::string_view modifier) { return modifier.starts_with(".param"); });
  }
  if (!Contains(kPure, instruction.opcode) || instruction.Has(".cc")) return false;
  for (const ptx::Operand& operand : instruction.operands) {
    if (operand.kind != ptx::Operand::Kind::kSpecialRegister) continue;
    if (!Contains(kConstantRegisters, operand.text.substr(0, operand.text.find('.')))) return false;
  }
  return true;
}

void GroupRegisters::Add(const ptx::Instruction& instruction) {
  ptx::ForEachRegister(instruction, [this](ptx::RegisterId reg, bool is_write) {
    if (reg < read_.size()) (is_write ? written_ : read_)[reg] = generation_;
  });
}

bool GroupRegisters::MayMoveBefore(const ptx::Instruction& instruction) const {
  bool may_move = true;
  ptx::ForEachRegister(instruction, [&](ptx::RegisterId reg, bool is_write) {
    if (reg >= read_.size() || written_[reg] == generation_ ||
        (is_write && read_[reg] == generation_)) {
      may_move = false;
    }
  });
  return may_move;
}

}  // namespace ops_debug::shadow
