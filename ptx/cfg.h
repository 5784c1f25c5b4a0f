// Control flow of one function: basic blocks over the statement indexes of its body, dominators,
// post-dominators.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/dominators.h"
#include "ptx/ir.h"
#include "ptx/result.h"

namespace ops_debug::ptx {

// Statements [begin, end) of Function::body. The blocks partition the body in order; a block starts
// at a label that some branch names (labels that nothing jumps to, as debug info has many, split
// nothing) or behind a branch.
struct BasicBlock {
  uint32_t begin = 0;
  uint32_t end = 0;
  std::vector<BlockId> successors;    // without duplicates; the fall-through first
  std::vector<BlockId> predecessors;  // without duplicates
  bool exits = false;  // some thread may end here: ret, exit, trap, or the end of the body
};

class ControlFlow {
 public:
  // Errors: a branch to a label that is not there, an indirect branch without .branchtargets.
  static Result<ControlFlow> Build(const Function& function);

  const std::vector<BasicBlock>& blocks() const {
    return blocks_;
  }  // block 0 is the entry; never empty
  BlockId BlockOf(uint32_t statement) const { return block_of_statement_[statement]; }
  // Blocks that the entry reaches.
  const std::vector<BlockId>& reverse_post_order() const { return reverse_post_order_; }
  bool IsReachable(BlockId block) const { return dominators_.Dominates(0, block); }

  // kNoBlock for the entry and unreachable blocks.
  BlockId ImmediateDominator(BlockId block) const { return dominators_.ImmediateDominator(block); }
  bool Dominates(BlockId above, BlockId below) const { return dominators_.Dominates(above, below); }

  // The block where threads that part at the end of `block` meet again; kNoBlock if only the exit
  // is common. An infinite loop counts as one that may leave from its last block, so that every
  // block has a way to the exit.
  BlockId ReconvergenceBlock(BlockId block) const {
    const BlockId immediate = post_dominators_.ImmediateDominator(block);
    return immediate == blocks_.size() ? kNoBlock : immediate;
  }
  bool PostDominates(BlockId below, BlockId above) const {
    return post_dominators_.Dominates(below, above);
  }

 private:
  void ComputeDominators();
  void ComputePostDominators();

  std::vector<BasicBlock> blocks_;
  std::vector<BlockId> block_of_statement_;
  std::vector<BlockId> reverse_post_order_;
  DominatorTree dominators_,
      post_dominators_;  // the latter over blocks and one virtual exit, number blocks().size()
};

// True for instructions behind which a block ends: bra, brx, ret, exit, trap.
bool EndsBlock(const Instruction& instruction);

}  // namespace ops_debug::ptx
