// A loop is a branch to an earlier label; its body is what stands between. Within it, whatever is
// computed from a polled value is marked, in order of the text, and a marked guard on a branch that
// leaves or repeats the loop is what we look for.
#include "shadow/passes/waiting_loops.h"

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;

// No other thread writes it, or none of another block.
bool IsOwn(const Instruction& instruction, PolledMemory memory) {
  for (std::string_view modifier : instruction.modifiers) {
    if ((modifier.starts_with(".shared") && memory == PolledMemory::kGlobal) ||
        modifier == ".local" || modifier == ".const" || modifier.starts_with(".param")) {
      return true;
    }
  }
  return false;
}

bool IsPoll(const Instruction& instruction, PolledMemory memory) {
  if (IsOwn(instruction, memory)) return false;
  if (instruction.Is("atom")) return true;
  return instruction.Is("ld") && (instruction.Has(".volatile") || instruction.Has(".relaxed") ||
                                  instruction.Has(".acquire") || instruction.Has(".mmio"));
}

bool TouchesOtherData(const Instruction& instruction, PolledMemory memory) {
  if (IsOwn(instruction, memory)) return false;
  return instruction.Is("st") || instruction.Is("red") || instruction.Is("cp") ||
         (instruction.Is("ld") && !IsPoll(instruction, memory));
}

using Labels = std::map<std::string_view, size_t>;

// Statement index that a branch goes to; past the end if it cannot be told.
size_t TargetOf(const Instruction& branch, const Labels& labels) {
  if (branch.operands.empty()) return ~size_t{0};
  const auto found = labels.find(branch.operands[0].text);
  return found == labels.end() ? ~size_t{0} : found->second;
}

// A compare-and-swap whose comparand the loop itself renews from what it found: it fails only
// because another thread's succeeded.
bool IsOptimisticUpdate(const ptx::Function& function, const Instruction& instruction, size_t begin,
                        size_t end) {
  if (!instruction.Is("atom") || !instruction.Has(".cas") || instruction.operands.size() < 4 ||
      !instruction.operands[2].IsRegister()) {
    return false;
  }
  const ptx::RegisterId comparand = instruction.operands[2].reg;
  bool renewed = false;
  for (size_t i = begin; i <= end; i++) {
    const auto* other = std::get_if<Instruction>(&function.body[i]);
    if (other == nullptr) continue;
    ptx::ForEachRegister(*other, [&](ptx::RegisterId reg, bool is_write) {
      renewed |= is_write && reg == comparand;
    });
  }
  return renewed;
}

bool LoopWaits(const ptx::Function& function, const Labels& labels, size_t begin, size_t end,
               PolledMemory memory) {
  std::set<ptx::RegisterId> polled;
  bool exit_depends = false;
  for (size_t i = begin; i <= end; i++) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr) continue;
    if (TouchesOtherData(*instruction, memory) ||
        IsOptimisticUpdate(function, *instruction, begin, end)) {
      return false;
    }
    if (instruction->Is("bra")) {
      const size_t target = TargetOf(*instruction, labels);
      const bool leaves_or_repeats = target < begin || target > end || i == end;
      exit_depends |= leaves_or_repeats && polled.contains(instruction->guard.reg);
      continue;
    }
    bool mark = IsPoll(*instruction, memory);
    ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
      if (!is_write && polled.contains(reg)) mark = true;
      if (is_write && mark) polled.insert(reg);
    });
  }
  return exit_depends;
}

}  // namespace

bool WaitsInLoop(const ptx::Function& function, PolledMemory memory) {
  Labels labels;
  for (size_t i = 0; i < function.body.size(); i++) {
    if (const auto* label = std::get_if<ptx::Label>(&function.body[i])) labels[label->name] = i;
  }
  for (size_t i = 0; i < function.body.size(); i++) {
    const auto* branch = std::get_if<Instruction>(&function.body[i]);
    if (branch == nullptr || !branch->Is("bra")) continue;
    const size_t target = TargetOf(*branch, labels);
    if (target < i && LoopWaits(function, labels, target, i, memory)) return true;
  }
  return false;
}

}  // namespace ops_debug::shadow
