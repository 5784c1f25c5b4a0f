// A taint analysis: what comes from a thread's number, from memory or from other lanes differs; so
// does what is computed from it, and whatever is assigned between a branch that differs and the
// place where its sides meet again.
#include "shadow/passes/uniformity.h"

#include <algorithm>
#include <string_view>

#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

using ptx::BlockId;
using ptx::ControlFlow;
using ptx::Function;
using ptx::Instruction;
using ptx::Operand;

constexpr int64_t kLanes = 32;

// Special registers with one value for the whole block.
bool IsUniformRegister(std::string_view name) {
  return name.starts_with("%ctaid") || name.starts_with("%nctaid") || name.starts_with("%ntid") ||
         name.starts_with("%gridid") || name.starts_with("%dynamic_smem") ||
         name.starts_with("%total_smem") || name == "WARP_SZ";
}

bool ReadsDifferently(const Operand& operand) {
  if (operand.kind == Operand::Kind::kSpecialRegister) return !IsUniformRegister(operand.text);
  return std::any_of(operand.children.begin(), operand.children.end(), ReadsDifferently);
}

}  // namespace

Uniformity::Uniformity(const Function& function, const ControlFlow& flow, Group group)
    : function_(function),
      flow_(flow),
      group_(group),
      differs_(function.registers.size(), false),
      divergent_(flow.blocks().size(), false) {
  if (group == Group::kWarp) FindThreadNumbers();
  bool changed = true;
  while (changed) changed = VisitAll();
}

void Uniformity::FindThreadNumbers() {
  std::set<ptx::RegisterId> others;
  for (const ptx::Statement& statement : function_.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    const bool number = instruction->Is("mov") && instruction->operands.size() == 2 &&
                        instruction->operands[1].kind == Operand::Kind::kSpecialRegister &&
                        instruction->operands[1].text == "%tid.x";
    ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
      if (is_write) (number ? thread_numbers_ : others).insert(reg);
    });
  }
  for (const ptx::RegisterId reg : others) thread_numbers_.erase(reg);
}

// Instructions whose result differs between threads whatever their operands are.
bool Uniformity::YieldsDifference(const Instruction& instruction) const {
  constexpr std::string_view kOfTheWarp[] = {"vote", "redux"};
  for (std::string_view name : kOfTheWarp) {
    if (instruction.Is(name)) return group_ == Group::kBlock;
  }
  constexpr std::string_view kSources[] = {"atom", "shfl", "match", "elect",    "activemask",
                                           "tex",  "tld4", "suld",  "ldmatrix", "mma",
                                           "wmma", "call", "ldu",   "mbarrier"};
  for (std::string_view name : kSources) {
    if (instruction.Is(name)) return true;
  }
  if (!instruction.Is("ld")) return false;
  return std::none_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                      [](std::string_view modifier) { return modifier.starts_with(".param"); });
}

// A vote does not depend on who asks; and of the thread's number, what is the same in each warp:
// tid / 32, tid < 64, tid > 31.
bool Uniformity::IsOfWholeWarps(const Instruction& instruction) const {
  if (group_ != Group::kWarp) return false;
  if (instruction.Is("vote") || instruction.Is("redux")) return true;
  const auto& operands = instruction.operands;
  if (operands.size() != 3 || !operands[1].IsRegister() ||
      !thread_numbers_.contains(operands[1].reg) || !operands[2].is_integer) {
    return false;
  }
  const int64_t value = operands[2].value;
  if (instruction.Is("shr")) return value >= 5;
  if (instruction.Is("and")) return value % kLanes == 0;
  if (!instruction.Is("setp")) return false;
  const bool below = instruction.Has(".lt") || instruction.Has(".ge") || instruction.Has(".lo") ||
                     instruction.Has(".hs");
  const bool up_to = instruction.Has(".le") || instruction.Has(".gt") || instruction.Has(".ls") ||
                     instruction.Has(".hi");
  return (below && value % kLanes == 0) || (up_to && (value + 1) % kLanes == 0);
}

bool Uniformity::VisitAll() {
  bool changed = false;
  for (BlockId block = 0; block < flow_.blocks().size(); block++) {
    const ptx::BasicBlock& statements = flow_.blocks()[block];
    for (uint32_t i = statements.begin; i < statements.end; i++) {
      const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
      if (instruction == nullptr) continue;
      bool differs =
          divergent_[block] || (instruction->guard.Present() && Differs(instruction->guard.reg));
      if (!IsOfWholeWarps(*instruction)) {
        differs |= YieldsDifference(*instruction);
        for (const Operand& operand : instruction->operands) differs |= ReadsDifferently(operand);
        ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
          if (!is_write) differs |= Differs(reg);
        });
      }
      if (!differs) continue;
      ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
        if (is_write && reg < differs_.size() && !differs_[reg]) differs_[reg] = changed = true;
      });
      if (ptx::EndsBlock(*instruction)) changed |= Diverge(block);
    }
  }
  return changed;
}

// The threads part at the end of `from`: everything up to where they meet again.
bool Uniformity::Diverge(BlockId from) {
  if (!parted_.insert(from).second) return false;
  const BlockId join = flow_.ReconvergenceBlock(from);
  std::vector<BlockId> todo(flow_.blocks()[from].successors);
  bool changed = false;
  std::set<BlockId> seen;
  while (!todo.empty()) {
    const BlockId block = todo.back();
    todo.pop_back();
    if (block == join || !seen.insert(block).second) continue;
    if (!divergent_[block]) divergent_[block] = changed = true;
    const auto& next = flow_.blocks()[block].successors;
    todo.insert(todo.end(), next.begin(), next.end());
  }
  return changed;
}

}  // namespace ops_debug::shadow
