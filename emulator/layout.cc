// Block order. The scheduler runs the diverged lanes with the lowest program counter first ("thread
// frontiers": Diamos et al., "SIMD Re-Convergence at Thread Frontiers", MICRO 2011). Lanes then
// meet again at the immediate post-dominator or earlier, provided that the code lies in topological
// order with every loop contiguous, before the code behind it. That is the weak topological order
// of Bourdoncle ("Efficient chaotic iteration strategies with widenings", 1993): strongly connected
// components in topological order, and each of them, its head taken out, ordered the same way.
#include <algorithm>
#include <vector>

#include "emulator/code.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kNone = ~0u;

struct Block {
  uint32_t begin = 0, end = 0;       // instructions
  std::vector<uint32_t> successors;  // taken targets first, the block behind it last
  uint32_t fall_through = kNone;
};

class BlockOrder {
 public:
  explicit BlockOrder(const std::vector<Block>& blocks)
      : blocks_(blocks),
        subset_(blocks.size(), 0),
        index_(blocks.size(), 0),
        low_(blocks.size(), 0) {}

  std::vector<uint32_t> Compute() {
    Arrange({0}, 0);
    return std::move(order_);
  }

 private:
  struct Visit {
    uint32_t block;
    size_t next = 0;
  };

  // Orders what is reachable from `roots` among the blocks marked with `subset`.
  void Arrange(const std::vector<uint32_t>& roots, uint32_t subset) {
    std::vector<std::vector<uint32_t>> components;
    for (uint32_t root : roots) {
      if (subset_[root] == subset && index_[root] == 0) Connect(root, subset, components);
    }
    // Tarjan yields components successors first.
    for (auto component = components.rbegin(); component != components.rend(); ++component) {
      const uint32_t head = component->back();
      order_.push_back(head);
      if (component->size() == 1) continue;
      const uint32_t inner = ++last_subset_;
      for (uint32_t block : *component) {
        if (block == head) continue;
        subset_[block] = inner;
        index_[block] = 0;
      }
      Arrange(blocks_[head].successors, inner);
    }
  }

  // Tarjan's algorithm with an explicit stack: generated code can nest thousands of blocks deep.
  void Connect(uint32_t root, uint32_t subset, std::vector<std::vector<uint32_t>>& components) {
    std::vector<Visit> visits{{root}};
    std::vector<uint32_t> stack;
    const auto enter = [&](uint32_t block) {
      index_[block] = low_[block] = ++counter_;
      stack.push_back(block);
    };
    enter(root);
    while (!visits.empty()) {
      Visit& visit = visits.back();
      const uint32_t block = visit.block;
      const auto& successors = blocks_[block].successors;
      if (visit.next < successors.size()) {
        const uint32_t next = successors[visit.next++];
        if (subset_[next] != subset) continue;
        if (index_[next] == 0) {
          enter(next);
          visits.push_back({next});
        } else {
          low_[block] = std::min(low_[block], index_[next]);
        }
        continue;
      }
      visits.pop_back();
      if (!visits.empty())
        low_[visits.back().block] = std::min(low_[visits.back().block], low_[block]);
      if (low_[block] != index_[block]) continue;
      std::vector<uint32_t>& component = components.emplace_back();
      uint32_t member = kNone;
      do {
        member = stack.back();
        stack.pop_back();
        component.push_back(member);
        subset_[member] = kDone;
      } while (member != block);
    }
  }

  static constexpr uint32_t kDone = ~0u;
  const std::vector<Block>& blocks_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> subset_, index_, low_;
  uint32_t counter_ = 0;
  uint32_t last_subset_ = 0;
};

bool EndsBlock(const Instruction& in) {
  switch (in.op) {
    case Op::kBranch:
    case Op::kBranchTable:
      return true;
    case Op::kReturn:
    case Op::kExit:
    case Op::kTrap:
      return in.guard == kNoRef;
    default:
      return false;
  }
}

std::vector<Block> FindBlocks(const Function& function, std::vector<uint32_t>& block_of) {
  const auto& code = function.code;
  std::vector<uint8_t> leader(code.size() + 1, 0);
  leader[0] = 1;
  for (uint32_t i = 0; i < code.size(); ++i) {
    if (code[i].op == Op::kBranch) leader[code[i].target] = 1;
    if (code[i].op == Op::kBranchTable) {
      for (uint32_t target : code[i].fn.table->targets) leader[target] = 1;
    }
    if (EndsBlock(code[i])) leader[i + 1] = 1;
  }
  std::vector<Block> blocks;
  block_of.assign(code.size() + 1, kNone);
  for (uint32_t i = 0; i < code.size(); ++i) {
    if (leader[i]) {
      blocks.emplace_back();
      blocks.back().begin = i;
    }
    block_of[i] = static_cast<uint32_t>(blocks.size() - 1);
    blocks.back().end = i + 1;
  }
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    Block& block = blocks[b];
    const Instruction& last = code[block.end - 1];
    bool falls = b + 1 < blocks.size();
    if (last.op == Op::kBranch) block.successors.push_back(block_of[last.target]);
    if (last.op == Op::kBranchTable) {
      for (uint32_t target : last.fn.table->targets) block.successors.push_back(block_of[target]);
    }
    if (EndsBlock(last) && last.guard == kNoRef) falls = false;
    if (falls) {
      block.fall_through = b + 1;
      block.successors.push_back(b + 1);
    }
  }
  return blocks;
}

}  // namespace

void LayOutCode(Function& function) {
  std::vector<uint32_t> block_of;
  const std::vector<Block> blocks = FindBlocks(function, block_of);
  const std::vector<uint32_t> order = BlockOrder(blocks).Compute();
  std::vector<Instruction> code;
  code.reserve(function.code.size());
  std::vector<uint32_t> new_begin(blocks.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    const Block& block = blocks[order[i]];
    const uint32_t next = i + 1 < order.size() ? order[i + 1] : kNone;
    new_begin[order[i]] = static_cast<uint32_t>(code.size());
    code.insert(code.end(), function.code.begin() + block.begin, function.code.begin() + block.end);
    if (block.fall_through == kNone || block.fall_through == next) continue;
    Instruction& last = code.back();
    if (last.op == Op::kBranch && block_of[last.target] == next) {
      // Branch on the opposite condition instead of jumping over a jump.
      last.guard_flip = ~last.guard_flip;
      last.target = blocks[block.fall_through].begin;
      continue;
    }
    const uint32_t statement = last.statement;
    Instruction& jump = code.emplace_back();
    jump.op = Op::kJump;
    jump.counted = 0;
    jump.statement = statement;
    jump.target = blocks[block.fall_through].begin;
  }
  uint32_t ordinal = 0;
  for (Instruction& in : code) {
    in.ordinal = ordinal;
    ordinal += in.counted;
    if (in.op == Op::kBranch || in.op == Op::kJump) in.target = new_begin[block_of[in.target]];
  }
  for (auto& table : function.tables) {
    for (uint32_t& target : table->targets) target = new_begin[block_of[target]];
  }
  function.code = std::move(code);
}

}  // namespace ops_debug::emulator
