// Builds the control-flow graph: resolve branch targets by scope, cut blocks, connect them, then
// dominators both ways.
#include "ptx/cfg.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "ptx/lexer.h"

namespace ops_debug::ptx {
namespace {

constexpr uint32_t kNoStatement = ~0u;

// Labels are visible in the block that declares them and further in. Inline assembly repeats label
// names in different blocks, so names resolve like registers: the innermost enclosing block wins.
class LabelTable {
 public:
  explicit LabelTable(const Function& function) : scope_of_statement_(function.body.size()) {
    parents_.push_back(kNoScope);
    uint32_t scope = 0;
    for (uint32_t i = 0; i < function.body.size(); ++i) {
      scope_of_statement_[i] = scope;
      const Statement& statement = function.body[i];
      if (std::holds_alternative<BlockBegin>(statement)) {
        parents_.push_back(scope);
        scope = static_cast<uint32_t>(parents_.size()) - 1;
      } else if (std::holds_alternative<BlockEnd>(statement)) {
        if (parents_[scope] != kNoScope) scope = parents_[scope];
      } else if (const auto* label = std::get_if<Label>(&statement)) {
        labels_[label->name].push_back({scope, i});
      }
    }
  }

  // Statement of the label that `name` means at statement `at`, or kNoStatement.
  uint32_t Find(std::string_view name, uint32_t at) const {
    const auto found = labels_.find(name);
    if (found == labels_.end()) return kNoStatement;
    if (found->second.size() == 1) return found->second[0].statement;
    for (uint32_t scope = scope_of_statement_[at]; scope != kNoScope; scope = parents_[scope]) {
      for (const Entry& entry : found->second) {
        if (entry.scope == scope) return entry.statement;
      }
    }
    return kNoStatement;
  }

 private:
  static constexpr uint32_t kNoScope = ~0u;
  struct Entry {
    uint32_t scope;
    uint32_t statement;
  };
  std::vector<uint32_t> scope_of_statement_;
  std::vector<uint32_t> parents_;
  std::unordered_map<std::string_view, std::vector<Entry>> labels_;
};

Diagnostic Problem(const Instruction& instruction, std::string message, std::string hint = "") {
  return {Diagnostic::Code::kInvalid, instruction.position.line, instruction.position.column,
          std::move(message), std::move(hint)};
}

bool IsBranch(const Instruction& instruction) {
  return instruction.Is("bra") || instruction.Is("brx");
}

bool EndsThread(const Instruction& instruction) {
  return instruction.Is("ret") || instruction.Is("exit") || instruction.Is("trap");
}

// Label statements that the branch at statement `at` may jump to.
Result<std::vector<uint32_t>> TargetsOf(const Function& function, const LabelTable& labels,
                                        uint32_t at) {
  const auto& instruction = std::get<Instruction>(function.body[at]);
  const bool is_indexed = instruction.Is("brx");
  if (instruction.operands.size() != (is_indexed ? 2u : 1u) ||
      instruction.operands.back().kind != Operand::Kind::kSymbol) {
    return Problem(instruction, std::string(instruction.opcode) + " without a label to jump to",
                   is_indexed ? "brx.idx names a .branchtargets list" : "");
  }
  const std::string_view name = instruction.operands.back().text;
  const uint32_t label = labels.Find(name, at);
  if (label == kNoStatement) {
    return Problem(instruction,
                   "branch to label '" + std::string(name) + "', which is not in this function");
  }
  if (!is_indexed) return std::vector<uint32_t>{label};
  const RawDirective* list = nullptr;
  uint32_t place = label + 1;
  for (; place < function.body.size() && list == nullptr; ++place) {
    list = std::get_if<RawDirective>(&function.body[place]);
    if (std::holds_alternative<Instruction>(function.body[place])) break;
  }
  if (list == nullptr || !list->text.starts_with(".branchtargets")) {
    return Problem(instruction, "label '" + std::string(name) + "' is no .branchtargets list");
  }
  std::vector<uint32_t> targets;
  const std::string text(list->text);
  for (const Token& token : Tokenize(text)) {
    if (token.kind != TokenKind::kIdentifier) continue;
    const uint32_t target = labels.Find(token.text, place - 1);
    if (target == kNoStatement) {
      return Problem(instruction,
                     "branch target '" + std::string(token.text) + "' is not in this function");
    }
    targets.push_back(target);
  }
  return targets;
}

void AddUnique(std::vector<BlockId>& list, BlockId block) {
  if (std::find(list.begin(), list.end(), block) == list.end()) list.push_back(block);
}

// One block of each strongly connected component that has no way out: where an infinite loop gets
// its virtual exit. Tarjan's algorithm, without recursion.
std::vector<BlockId> InfiniteLoops(const std::vector<BasicBlock>& blocks) {
  const auto count = static_cast<uint32_t>(blocks.size());
  struct Frame {
    BlockId block;
    size_t next;
  };
  std::vector<uint32_t> number(count, 0), low(count, 0), component(count, kNoBlock);
  std::vector<BlockId> open, loops;
  std::vector<Frame> stack;
  uint32_t clock = 0, components = 0;
  const auto enter = [&](BlockId block) {
    number[block] = low[block] = ++clock;
    open.push_back(block);
    stack.push_back({block, 0});
  };
  for (BlockId root = 0; root < count; ++root) {
    if (number[root] != 0) continue;
    enter(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const BlockId block = frame.block;
      if (frame.next < blocks[block].successors.size()) {
        const BlockId successor = blocks[block].successors[frame.next++];
        if (number[successor] == 0) {
          enter(successor);
        } else if (component[successor] == kNoBlock) {
          low[block] = std::min(low[block], number[successor]);
        }
        continue;
      }
      stack.pop_back();
      if (!stack.empty()) low[stack.back().block] = std::min(low[stack.back().block], low[block]);
      if (low[block] != number[block]) continue;
      // `block` is the root of a finished component: the blocks above it on `open`.
      const auto first = std::find(open.rbegin(), open.rend(), block).base() - 1;
      bool leaves = false;
      BlockId last = 0;
      for (auto it = first; it != open.end(); ++it) component[*it] = components;
      for (auto it = first; it != open.end(); ++it) {
        last = std::max(last, *it);
        leaves = leaves || blocks[*it].exits;
        for (const BlockId successor : blocks[*it].successors)
          leaves = leaves || component[successor] != components;
      }
      if (!leaves) loops.push_back(last);
      open.erase(first, open.end());
      ++components;
    }
  }
  return loops;
}

}  // namespace

bool EndsBlock(const Instruction& instruction) {
  return IsBranch(instruction) || EndsThread(instruction);
}

Result<ControlFlow> ControlFlow::Build(const Function& function) {
  const LabelTable labels(function);
  const auto count = static_cast<uint32_t>(function.body.size());
  std::vector<bool> is_target(count);
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>>
      branches;  // statement, its target labels; in order
  for (uint32_t i = 0; i < count; ++i) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr || !IsBranch(*instruction)) continue;
    auto targets = TargetsOf(function, labels, i);
    if (!targets.ok()) return targets.error();
    for (const uint32_t target : *targets) is_target[target] = true;
    branches.emplace_back(i, std::move(*targets));
  }

  ControlFlow flow;
  flow.block_of_statement_.resize(count);
  flow.blocks_.emplace_back();
  bool has_instruction = false, has_ended = false;
  for (uint32_t i = 0; i < count; ++i) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (has_ended || (is_target[i] && has_instruction)) {
      flow.blocks_.back().end = i;
      flow.blocks_.push_back({i, i, {}, {}, false});
      has_instruction = has_ended = false;
    }
    flow.block_of_statement_[i] = static_cast<BlockId>(flow.blocks_.size()) - 1;
    has_instruction = has_instruction || instruction != nullptr;
    has_ended = instruction != nullptr && EndsBlock(*instruction);
  }
  flow.blocks_.back().end = count;

  size_t next_branch = 0;
  for (BlockId block = 0; block < flow.blocks_.size(); ++block) {
    BasicBlock& current = flow.blocks_[block];
    // The last instruction is the last statement if it ends the block.
    const Instruction* last = current.end > current.begin
                                  ? std::get_if<Instruction>(&function.body[current.end - 1])
                                  : nullptr;
    if (last != nullptr && !EndsBlock(*last)) last = nullptr;
    const bool falls_through = last == nullptr || last->guard.Present();
    if (falls_through) {
      if (block + 1 < flow.blocks_.size()) {
        current.successors.push_back(block + 1);
      } else {
        current.exits = true;
      }
    }
    if (last == nullptr) continue;
    if (EndsThread(*last)) current.exits = true;
    if (IsBranch(*last)) {
      for (const uint32_t target : branches[next_branch++].second) {
        AddUnique(current.successors, flow.block_of_statement_[target]);
      }
    }
  }
  for (BlockId block = 0; block < flow.blocks_.size(); ++block) {
    for (const BlockId successor : flow.blocks_[block].successors)
      flow.blocks_[successor].predecessors.push_back(block);
  }
  flow.ComputeDominators();
  flow.ComputePostDominators();
  return flow;
}

void ControlFlow::ComputeDominators() {
  Edges successors(blocks_.size()), predecessors(blocks_.size());
  for (BlockId block = 0; block < blocks_.size(); ++block) {
    successors[block] = blocks_[block].successors;
    predecessors[block] = blocks_[block].predecessors;
  }
  reverse_post_order_ = ReversePostOrder(successors, 0);
  dominators_ = DominatorTree(successors, predecessors, 0);
}

void ControlFlow::ComputePostDominators() {
  const auto exit = static_cast<BlockId>(blocks_.size());
  Edges forward(blocks_.size() + 1), backward(blocks_.size() + 1);
  const auto connect = [&](BlockId from, BlockId to) {
    forward[from].push_back(to);
    backward[to].push_back(from);
  };
  for (BlockId block = 0; block < blocks_.size(); ++block) {
    for (const BlockId successor : blocks_[block].successors) connect(block, successor);
    if (blocks_[block].exits) connect(block, exit);
  }
  for (const BlockId block : InfiniteLoops(blocks_)) connect(block, exit);
  post_dominators_ = DominatorTree(backward, forward, exit);
}

}  // namespace ops_debug::ptx
