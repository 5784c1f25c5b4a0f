// Which values and branches are the same for all threads of a block, or of a warp: what a barrier
// stands under decides whether all of them reach it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "ptx/cfg.h"
#include "ptx/ir.h"

namespace ops_debug::shadow {

class Uniformity {
 public:
  // Warps are taken to be made of threads that are neighbours in x, and of 32 of them: nothing that
  // alarms may rest on it.
  enum class Group : uint8_t { kBlock, kWarp };

  // `flow` is that of `function`; both outlive the object.
  Uniformity(const ptx::Function& function, const ptx::ControlFlow& flow, Group group);

  // Not all threads of the group need to come to the statement together.
  bool IsDivergent(uint32_t statement) const { return divergent_[flow_.BlockOf(statement)]; }
  // The register may hold different values.
  bool Differs(ptx::RegisterId reg) const { return reg < differs_.size() && differs_[reg]; }

 private:
  bool VisitAll();
  bool YieldsDifference(const ptx::Instruction& instruction) const;
  bool IsOfWholeWarps(const ptx::Instruction& instruction) const;
  bool Diverge(ptx::BlockId from);
  void FindThreadNumbers();

  const ptx::Function& function_;
  const ptx::ControlFlow& flow_;
  const Group group_;
  std::vector<bool> differs_;    // by register
  std::vector<bool> divergent_;  // by block: not all threads need to be in it together
  std::set<ptx::BlockId> parted_;
  std::set<ptx::RegisterId> thread_numbers_;  // %tid.x and nothing else
};

}  // namespace ops_debug::shadow
