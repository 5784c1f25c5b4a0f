// Immediate dominators of any directed graph: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance
// Algorithm" (2001).
#pragma once

#include <cstdint>
#include <vector>

namespace ops_debug::ptx {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = ~0u;

// Adjacency: edges[node] lists the neighbours.
using Edges = std::vector<std::vector<BlockId>>;

// Nodes reachable from `root`, in reverse post-order. No recursion.
std::vector<BlockId> ReversePostOrder(const Edges& successors, BlockId root);

class DominatorTree {
 public:
  DominatorTree() = default;
  // For post-dominators pass the reversed graph and its exit.
  DominatorTree(const Edges& successors, const Edges& predecessors, BlockId root);

  // kNoBlock for the root and for nodes that it does not reach.
  BlockId ImmediateDominator(BlockId node) const { return immediate_[node]; }
  // Reflexive. False if either is unreachable from the root.
  bool Dominates(BlockId above, BlockId below) const {
    return enter_[above] != 0 && enter_[above] <= enter_[below] && leave_[below] <= leave_[above];
  }

 private:
  void NumberTree(BlockId root);
  std::vector<BlockId> immediate_;
  std::vector<uint32_t> enter_, leave_;  // of a walk over the tree; 0 = unreachable
};

}  // namespace ops_debug::ptx
