// The two-finger intersection on post-order numbers, iterated to a fixed point, then an Euler tour
// for O(1) queries.
#include "ptx/dominators.h"

#include <algorithm>

namespace ops_debug::ptx {

std::vector<BlockId> ReversePostOrder(const Edges& successors, BlockId root) {
  struct Frame {
    BlockId node;
    size_t next;
  };
  std::vector<bool> seen(successors.size());
  std::vector<BlockId> order;
  std::vector<Frame> stack{{root, 0}};
  seen[root] = true;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next == successors[frame.node].size()) {
      order.push_back(frame.node);
      stack.pop_back();
      continue;
    }
    const BlockId successor = successors[frame.node][frame.next++];
    if (seen[successor]) continue;
    seen[successor] = true;
    stack.push_back({successor, 0});
  }
  std::reverse(order.begin(), order.end());
  return order;
}

DominatorTree::DominatorTree(const Edges& successors, const Edges& predecessors, BlockId root)
    : immediate_(successors.size(), kNoBlock) {
  const std::vector<BlockId> order = ReversePostOrder(successors, root);
  std::vector<uint32_t> number(successors.size(), ~0u);  // position in reverse post-order
  for (uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
  immediate_[root] = root;
  for (bool changed = true; changed;) {
    changed = false;
    for (const BlockId node : order) {
      if (node == root) continue;
      BlockId dominator = kNoBlock;
      for (const BlockId predecessor : predecessors[node]) {
        if (immediate_[predecessor] == kNoBlock) continue;  // not reached, or not yet
        if (dominator == kNoBlock) {
          dominator = predecessor;
          continue;
        }
        BlockId other = predecessor;
        while (dominator != other) {
          while (number[dominator] > number[other]) dominator = immediate_[dominator];
          while (number[other] > number[dominator]) other = immediate_[other];
        }
      }
      if (immediate_[node] != dominator) {
        immediate_[node] = dominator;
        changed = true;
      }
    }
  }
  immediate_[root] = kNoBlock;
  NumberTree(root);
}

void DominatorTree::NumberTree(BlockId root) {
  const size_t count = immediate_.size();
  enter_.assign(count, 0);
  leave_.assign(count, 0);
  Edges children(count);
  for (BlockId node = 0; node < count; ++node) {
    if (immediate_[node] != kNoBlock) children[immediate_[node]].push_back(node);
  }
  struct Frame {
    BlockId node;
    size_t next;
  };
  uint32_t clock = 0;
  std::vector<Frame> stack{{root, 0}};
  enter_[root] = ++clock;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next == children[frame.node].size()) {
      leave_[frame.node] = clock;
      stack.pop_back();
      continue;
    }
    const BlockId child = children[frame.node][frame.next++];
    enter_[child] = ++clock;
    stack.push_back({child, 0});
  }
}

}  // namespace ops_debug::ptx
