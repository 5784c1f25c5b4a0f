// Uniformity is a taint analysis: what comes from a thread's number, from memory or from other
// lanes differs; so does what is computed from it, and whatever is assigned between a branch that
// differs and the place where its sides meet again. Then one walk from the start and from each
// barrier gives the intervals.
#include "shadow/passes/barrier_intervals.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "ptx/cfg.h"
#include "ptx/operands.h"
#include "shadow/passes/synchronisation.h"

namespace ops_debug::shadow {
namespace {

using ptx::BlockId;
using ptx::ControlFlow;
using ptx::Function;
using ptx::Instruction;
using ptx::Operand;

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

// Instructions whose result differs between threads whatever their operands are.
bool YieldsDifference(const Instruction& instruction) {
  constexpr std::string_view kSources[] = {
      "atom", "shfl", "vote",     "match", "redux", "elect", "activemask", "tex",
      "tld4", "suld", "ldmatrix", "mma",   "wmma",  "call",  "ldu",        "mbarrier"};
  for (std::string_view name : kSources) {
    if (instruction.Is(name)) return true;
  }
  if (!instruction.Is("ld")) return false;
  return std::none_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                      [](std::string_view modifier) { return modifier.starts_with(".param"); });
}

class Uniformity {
 public:
  Uniformity(const Function& function, const ControlFlow& flow)
      : function_(function),
        flow_(flow),
        differs_(function.registers.size(), false),
        divergent_(flow.blocks().size(), false) {
    bool changed = true;
    while (changed) changed = VisitAll();
  }

  bool IsDivergent(uint32_t statement) const { return divergent_[flow_.BlockOf(statement)]; }
  bool Differs(ptx::RegisterId reg) const { return reg < differs_.size() && differs_[reg]; }

 private:
  bool VisitAll() {
    bool changed = false;
    for (BlockId block = 0; block < flow_.blocks().size(); block++) {
      const ptx::BasicBlock& statements = flow_.blocks()[block];
      for (uint32_t i = statements.begin; i < statements.end; i++) {
        const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
        if (instruction == nullptr) continue;
        bool differs = divergent_[block] || YieldsDifference(*instruction) ||
                       (instruction->guard.Present() && Differs(instruction->guard.reg));
        for (const Operand& operand : instruction->operands) differs |= ReadsDifferently(operand);
        ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
          if (!is_write) differs |= Differs(reg);
        });
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
  bool Diverge(BlockId from) {
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

  const Function& function_;
  const ControlFlow& flow_;
  std::vector<bool> differs_;    // by register
  std::vector<bool> divergent_;  // by block: not all threads need to be in it together
  std::set<BlockId> parted_;
};

class Intervals {
 public:
  Intervals(const Function& function, const ControlFlow& flow,
            std::span<const IntervalAccess> accesses)
      : function_(function),
        flow_(flow),
        at_(function.body.size(), -1),
        next_(accesses.size(), -1) {
    // Several accesses of one instruction form a list.
    for (size_t i = 0; i < accesses.size(); i++) {
      next_[i] = at_[accesses[i].statement];
      at_[accesses[i].statement] = static_cast<int>(i);
    }
  }

  // Accesses between `statement` and the next barriers.
  std::vector<uint32_t> From(uint32_t statement) const {
    std::vector<uint32_t> found;
    std::vector<bool> entered(flow_.blocks().size(), false);
    std::vector<uint32_t> todo{statement};
    while (!todo.empty()) {
      const uint32_t begin = todo.back();
      todo.pop_back();
      if (begin >= function_.body.size()) continue;
      const ptx::BasicBlock& block = flow_.blocks()[flow_.BlockOf(begin)];
      bool ended = false;
      for (uint32_t i = begin; i < block.end && !ended; i++) {
        for (int k = at_[i]; k >= 0; k = next_[static_cast<size_t>(k)])
          found.push_back(static_cast<uint32_t>(k));
        const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
        ended = instruction != nullptr && !instruction->guard.Present() &&
                DescribeBarrier(*instruction).kind == Barrier::kBlock;
      }
      if (ended) continue;
      for (BlockId next : block.successors) {
        if (entered[next]) continue;
        entered[next] = true;
        todo.push_back(flow_.blocks()[next].begin);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  const Function& function_;
  const ControlFlow& flow_;
  std::vector<int> at_, next_;
};

}  // namespace

std::vector<bool> FindUnracedReads(const Function& function,
                                   std::span<const IntervalAccess> accesses) {
  std::vector<bool> unraced(accesses.size(), false);
  std::vector<uint32_t> starts{0};
  for (uint32_t i = 0; i < function.body.size(); i++) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr) continue;
    if (instruction->Is("call")) return unraced;
    switch (DescribeBarrier(*instruction).kind) {
      case Barrier::kNamed:
      case Barrier::kNamedOnly:
        return unraced;
      case Barrier::kBlock:
        starts.push_back(i + 1);
        break;
      case Barrier::kNone:
      case Barrier::kWarp:
        break;
    }
  }
  auto flow = ControlFlow::Build(function);
  if (!flow.ok()) return unraced;
  const Uniformity uniformity(function, *flow);
  for (size_t i = 1; i < starts.size(); i++) {
    const uint32_t barrier = starts[i] - 1;
    const auto& instruction = std::get<Instruction>(function.body[barrier]);
    if (uniformity.IsDivergent(barrier) ||
        (instruction.guard.Present() && uniformity.Differs(instruction.guard.reg))) {
      return unraced;
    }
  }
  for (size_t i = 0; i < accesses.size(); i++) unraced[i] = !accesses[i].writes;
  const Intervals intervals(function, *flow, accesses);
  for (const uint32_t start : starts) {
    const std::vector<uint32_t> together = intervals.From(start);
    bool writes_unknown = false, writes_any = false;
    std::set<int64_t> written;
    for (const uint32_t k : together) {
      if (!accesses[k].writes) continue;
      writes_any = true;
      if (accesses[k].array < 0) writes_unknown = true;
      written.insert(accesses[k].array);
    }
    for (const uint32_t k : together) {
      if (accesses[k].writes) continue;
      if (writes_unknown ||
          (accesses[k].array < 0 ? writes_any : written.contains(accesses[k].array)))
        unraced[k] = false;
    }
  }
  return unraced;
}

}  // namespace ops_debug::shadow
