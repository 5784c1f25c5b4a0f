// Basic blocks and dominators of decoded code. See control_flow.h.
#include "emulator/checks/control_flow.h"

#include <utility>

namespace ops_debug::emulator {
namespace {

bool IsWork(Op op) {
  switch (op) {
    case Op::kLoad:
    case Op::kStore:
    case Op::kLoadUniform:
    case Op::kAtomic:
    case Op::kCopyAsync:
    case Op::kCall:
    case Op::kCallIndirect:
    case Op::kBarrier:
    case Op::kWarpSync:
    case Op::kShuffle:
    case Op::kVote:
    case Op::kMatch:
    case Op::kReduce:
    case Op::kElect:
    case Op::kExtended:
      return true;
    default:
      return false;
  }
}

bool EndsBlock(Op op) {
  switch (op) {
    case Op::kBranch:
    case Op::kJump:
    case Op::kBranchTable:
    case Op::kReturn:
    case Op::kExit:
    case Op::kTrap:
      return true;
    default:
      return false;
  }
}

}  // namespace

ControlFlow::ControlFlow(const Function& function) {
  const std::vector<Instruction>& code = function.code;
  const auto size = static_cast<uint32_t>(code.size());
  const auto is_tool = [&](const Instruction& in) {
    return in.statement < function.statements.size() && function.statements[in.statement].is_tool;
  };
  std::vector<uint8_t> leader(size + 1, 0);
  leader[0] = 1;
  for (uint32_t i = 0; i < size; ++i) {
    const Instruction& in = code[i];
    if (in.op == Op::kBranch || in.op == Op::kJump) leader[in.target] = 1;
    if (in.op == Op::kBranchTable) {
      for (const uint32_t target : in.fn.table->targets) leader[target] = 1;
    }
    if (EndsBlock(in.op)) leader[i + 1] = 1;
  }
  block_of_.resize(size + 1);
  std::vector<uint32_t> last;  // instruction of each block
  for (uint32_t i = 0; i < size; ++i) {
    if (leader[i] != 0) {
      last.push_back(i);
      has_work_.push_back(0);
    }
    const auto block = static_cast<uint32_t>(last.size() - 1);
    block_of_[i] = block;
    last[block] = i;
    if (IsWork(code[i].op) && !is_tool(code[i])) has_work_[block] = 1;
  }
  // One more block: the end of the kernel.
  const auto end = static_cast<uint32_t>(last.size());
  block_of_[size] = end;
  has_work_.push_back(0);
  Edges successors(end + 1), predecessors(end + 1);
  const auto connect = [&](uint32_t from, uint32_t to) {
    successors[from].push_back(to);
    predecessors[to].push_back(from);
  };
  for (uint32_t block = 0; block < end; ++block) {
    const Instruction& in = code[last[block]];
    const bool always = in.guard == kNoRef;
    bool falls = true;
    switch (in.op) {
      case Op::kBranch:
      case Op::kJump:
        connect(block, block_of_[in.target]);
        falls = !always;
        break;
      case Op::kBranchTable:
        for (const uint32_t target : in.fn.table->targets) connect(block, block_of_[target]);
        falls = !always;
        break;
      case Op::kReturn:
      case Op::kExit:
        // Where the tool's own code ends a thread, the program would have gone on.
        if (!is_tool(in)) connect(block, end);
        falls = !always;
        break;
      case Op::kTrap:
        falls = !always;  // ends the launch: nobody goes around anything there
        break;
      default:
        break;
    }
    if (falls) connect(block, block_of_[last[block] + 1]);
  }
  // Behind a branch of the tool's own the program's instructions stand twice, once on either side:
  // they count for the block in front of it.
  for (uint32_t block = end; block-- > 0;) {
    const Instruction& in = code[last[block]];
    if (in.op != Op::kBranch || !is_tool(in)) continue;
    for (const uint32_t next : successors[block]) has_work_[block] |= has_work_[next];
  }
  dominator_ = Dominators(0, successors, predecessors);
  post_dominator_ = Dominators(end, predecessors, successors);
  successors_ = std::move(successors);
}

std::vector<uint32_t> ControlFlow::Dominators(uint32_t root, const Edges& successors,
                                              const Edges& predecessors) {
  const size_t count = successors.size();
  std::vector<uint32_t> order;  // post-order
  std::vector<uint32_t> number(count, kNone);
  std::vector<std::pair<uint32_t, size_t>> stack{{root, 0}};
  std::vector<uint8_t> seen(count, 0);
  seen[root] = 1;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    if (next < successors[block].size()) {
      const uint32_t successor = successors[block][next++];
      if (seen[successor] == 0) {
        seen[successor] = 1;
        stack.emplace_back(successor, 0);
      }
      continue;
    }
    number[block] = static_cast<uint32_t>(order.size());
    order.push_back(block);
    stack.pop_back();
  }
  std::vector<uint32_t> immediate(count, kNone);
  immediate[root] = root;
  const auto meet = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (number[a] < number[b]) a = immediate[a];
      while (number[b] < number[a]) b = immediate[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = order.size(); i-- > 0;) {
      const uint32_t block = order[i];
      if (block == root) continue;
      uint32_t best = kNone;
      for (const uint32_t predecessor : predecessors[block]) {
        if (number[predecessor] == kNone || immediate[predecessor] == kNone) continue;
        best = best == kNone ? predecessor : meet(best, predecessor);
      }
      if (best == immediate[block]) continue;
      immediate[block] = best;
      changed = true;
    }
  }
  return immediate;
}

bool ControlFlow::Dominates(const std::vector<uint32_t>& immediate, uint32_t a, uint32_t b) {
  if (immediate[a] == kNone) return false;
  for (;;) {
    if (a == b) return true;
    const uint32_t next = immediate[b];
    if (next == kNone || next == b) return false;
    b = next;
  }
}

bool ControlFlow::Reaches(uint32_t from, uint32_t to) const {
  std::vector<uint8_t> seen(successors_.size(), 0);
  std::vector<uint32_t> open{from};
  while (!open.empty()) {
    const uint32_t block = open.back();
    open.pop_back();
    if (block == to) return true;
    if (seen[block] != 0) continue;
    seen[block] = 1;
    open.insert(open.end(), successors_[block].begin(), successors_[block].end());
  }
  return false;
}

bool ControlFlow::WentAround(uint32_t place, uint32_t exit) const {
  if (place >= block_of_.size() || exit >= block_of_.size()) return false;
  const uint32_t from = block_of_[place];
  // The blocks that every path from `place` goes through, nearest first.
  for (uint32_t block = from;;) {
    const uint32_t next = post_dominator_[block];
    if (next == kNone || next == block) return false;
    block = next;
    if (has_work_[block] != 0 && Dominates(dominator_, block, block_of_[exit]) &&
        !Reaches(block, from))
      return true;
  }
}

}  // namespace ops_debug::emulator
