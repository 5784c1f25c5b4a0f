// Kosaraju's two walks, without recursion: unrolled loops make long chains.
#include "shadow/passes/accumulators.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "shadow/passes/numeric_instruction.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

struct Node {
  uint32_t statement = 0;
  bool copies = false;
  std::vector<std::pair<uint32_t, int>> sources;  // nodes, by operand
  std::vector<uint32_t> users;
  uint32_t component = 0;  // from 1
};

class AccumulatorFinder {
 public:
  AccumulatorFinder(const ptx::Function& function, const ptx::DefUse& flow)
      : function_(function), flow_(flow) {}

  std::map<uint32_t, Accumulator> Run() {
    CollectNodes();
    Connect();
    NumberComponents();
    std::map<uint32_t, Accumulator> found;
    for (const Node& node : nodes_) {
      if (node.copies) continue;
      for (const auto& [source, operand] : node.sources) {
        if (nodes_[source].component != node.component || !IsCycle(node.component)) continue;
        const bool last = std::none_of(node.users.begin(), node.users.end(), [&](uint32_t user) {
          return nodes_[user].component == node.component && !nodes_[user].copies &&
                 nodes_[user].statement > node.statement;
        });
        found[node.statement] = {operand, last};
      }
    }
    return found;
  }

 private:
  void CollectNodes() {
    for (uint32_t i = 0; i < function_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
      if (instruction == nullptr) continue;
      const bool copies = instruction->Is("mov") && instruction->operands.size() == 2 &&
                          instruction->operands[1].IsRegister();
      if (!copies && !Adds(*instruction)) continue;
      by_statement_[i] = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({i, copies, {}, {}, 0});
    }
  }

  static bool Adds(const Instruction& instruction) {
    const auto what = DescribeNumeric(instruction);
    return what && (what->operation == kOperationAdd || what->operation == kOperationFma);
  }

  void Connect() {
    for (uint32_t i = 0; i < nodes_.size(); i++) {
      const auto& instruction = std::get<Instruction>(function_.body[nodes_[i].statement]);
      const bool fused = !nodes_[i].copies && instruction.operands.size() == 4;
      const size_t first = fused ? 3 : 1, end = fused ? 4 : nodes_[i].copies ? 2 : 3;
      for (size_t k = first; k < end; k++) {
        const Operand& operand = instruction.operands[k];
        if (!operand.IsRegister()) continue;
        for (const uint32_t index : flow_.ReachingDefinitions(nodes_[i].statement, operand.reg)) {
          const auto found = by_statement_.find(flow_.definitions()[index].statement);
          if (found == by_statement_.end()) continue;
          nodes_[i].sources.emplace_back(found->second, static_cast<int>(k) - 1);
          nodes_[found->second].users.push_back(i);
        }
      }
    }
  }

  void NumberComponents() {
    std::vector<uint32_t> order;
    std::vector<bool> seen(nodes_.size());
    std::vector<std::pair<uint32_t, size_t>> stack;
    for (uint32_t root = 0; root < nodes_.size(); root++) {
      if (seen[root]) continue;
      seen[root] = true;
      stack.emplace_back(root, 0);
      while (!stack.empty()) {
        auto& [node, next] = stack.back();
        if (next == nodes_[node].users.size()) {
          order.push_back(node);
          stack.pop_back();
          continue;
        }
        const uint32_t user = nodes_[node].users[next++];
        if (seen[user]) continue;
        seen[user] = true;
        stack.emplace_back(user, 0);
      }
    }
    std::reverse(order.begin(), order.end());
    sizes_.push_back(0);
    for (const uint32_t root : order) {
      if (nodes_[root].component != 0) continue;
      const auto component = static_cast<uint32_t>(sizes_.size());
      sizes_.push_back(0);
      std::vector<uint32_t> open{root};
      nodes_[root].component = component;
      while (!open.empty()) {
        const uint32_t node = open.back();
        open.pop_back();
        sizes_[component]++;
        for (const auto& [source, operand] : nodes_[node].sources) {
          if (source == node) loops_.push_back(component);
          if (nodes_[source].component != 0) continue;
          nodes_[source].component = component;
          open.push_back(source);
        }
      }
    }
  }

  bool IsCycle(uint32_t component) const {
    return sizes_[component] > 1 ||
           std::find(loops_.begin(), loops_.end(), component) != loops_.end();
  }

  const ptx::Function& function_;
  const ptx::DefUse& flow_;
  std::map<uint32_t, uint32_t> by_statement_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> sizes_;  // by component
  std::vector<uint32_t> loops_;  // components with a node that adds to itself
};

}  // namespace

std::map<uint32_t, Accumulator> FindAccumulators(const ptx::Function& function,
                                                 const ptx::DefUse& flow) {
  return AccumulatorFinder(function, flow).Run();
}

}  // namespace ops_debug::shadow
