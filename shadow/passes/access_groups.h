// Which instructions one check may serve together.
//
// A check ends in a branch, and a branch before every access is what makes checking slow: it fences
// the compiler's scheduling, so loads are no longer in flight together. Accesses of one straight
// piece of code are therefore tested together, before the first of them, with one branch to a slow
// copy of the piece in which each is checked by itself. For that, the address arithmetic between
// them moves up in front of the test; what cannot move ends the group.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::shadow {

// True for instructions that must not exist twice (a warp runs them together, or control leaves):
// they end a group.
bool EndsGroup(const ptx::Instruction& instruction);

// True if the instruction only computes registers from registers, so that it may run earlier.
bool IsMovable(const ptx::Instruction& instruction);

// The registers that the instructions of the open group (those that stay behind the test) read and
// write.
class GroupRegisters {
 public:
  explicit GroupRegisters(size_t register_count)
      : read_(register_count, 0), written_(register_count, 0) {}

  void Clear() { generation_++; }
  void Add(const ptx::Instruction& instruction);
  bool Writes(ptx::RegisterId reg) const {
    return reg < written_.size() && written_[reg] == generation_;
  }
  // Moving `instruction` in front of the group changes no value.
  bool MayMoveBefore(const ptx::Instruction& instruction) const;

 private:
  uint32_t generation_ = 1;
  std::vector<uint32_t> read_, written_;  // by RegisterId: generation of the last group that did
};

}  // namespace ops_debug::shadow
