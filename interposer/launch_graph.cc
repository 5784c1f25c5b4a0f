// The list is made when a graph is instantiated, so that a launch of the graph only adds numbers.
// A conditional body counts as launched once per launch of the graph: how often it really ran, only
// the device knows.
#include "interposer/launch_graph.h"

#include <algorithm>
#include <map>
#include <shared_mutex>
#include <vector>

#include "interposer/launch_record.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

struct Node {
  FunctionPointer function;
  bool is_twin = false;
  bool enabled = true;
  std::vector<CUgraphNode> parents;  // child graph nodes and conditional nodes around it
};

// Launches that one replay adds to one kernel.
struct Share {
  bool checked = false;
  Engine engine = Engine::kPtx;
  std::string reason;
  uint64_t launches = 0;
};

struct Exec {
  std::mutex mutex;  // guards the rest
  std::unordered_map<CUgraphNode, Node> nodes;
  std::vector<std::pair<FunctionPointer, Share>> shares;
  bool current = false;  // shares are those of nodes
};

// Never destroyed: hooks run until the very end of the process.
struct Graphs {
  std::shared_mutex mutex;
  std::unordered_map<CUgraphExec, std::shared_ptr<Exec>> execs;
  std::unordered_map<CUgraphNode, std::vector<CUgraph>> bodies;
};
Graphs& TheGraphs() {
  static auto* graphs = new Graphs;
  return *graphs;
}

std::shared_ptr<Exec> Find(CUgraphExec exec) {
  Graphs& graphs = TheGraphs();
  std::shared_lock lock(graphs.mutex);
  const auto found = graphs.execs.find(exec);
  return found == graphs.execs.end() ? nullptr : found->second;
}

std::vector<CUgraph> BodiesOf(CUgraphNode node) {
  Graphs& graphs = TheGraphs();
  std::shared_lock lock(graphs.mutex);
  const auto found = graphs.bodies.find(node);
  return found == graphs.bodies.end() ? std::vector<CUgraph>{} : found->second;
}

FunctionPointer FunctionOfNode(CUgraphNode node, bool* is_twin) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  if (OPS_DEBUG_REAL(cuGraphKernelNodeGetParams_v2)(node, &parameters) != CUDA_SUCCESS) {
    CUDA_KERNEL_NODE_PARAMS_v1 old{};
    if (OPS_DEBUG_REAL(cuGraphKernelNodeGetParams)(node, &old) != CUDA_SUCCESS) return nullptr;
    parameters.func = old.func;
  }
  FunctionPointer function =
      FindNodeFunction(parameters.func, parameters.func ? nullptr : parameters.kern, is_twin);
  if (!function && parameters.func) function = RegisterStranger(parameters.func);
  return function;
}

void Collect(CUgraph graph, std::vector<CUgraphNode>& parents,
             std::unordered_map<CUgraphNode, Node>& out) {
  constexpr size_t kDeepest = 32;
  size_t count = 0;
  if (parents.size() > kDeepest ||
      OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) {
    return;
  }
  std::vector<CUgraphNode> nodes(count);
  if (OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (OPS_DEBUG_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) continue;
    std::vector<CUgraph> inside;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      Node entry;
      entry.function = FunctionOfNode(node, &entry.is_twin);
      entry.parents = parents;
      if (entry.function) out[node] = std::move(entry);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (OPS_DEBUG_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        inside.push_back(child);
    } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      inside = BodiesOf(node);
    }
    parents.push_back(node);
    for (const CUgraph each : inside) Collect(each, parents, out);
    parents.pop_back();
  }
}

Share ShareOf(const Node& node) {
  KernelRecord& kernel = *node.function->kernel;
  Share share;
  if (node.is_twin) {
    share.checked = true;
    return share;
  }
  if (kernel.node_covered) {
    share.checked = true;
    share.engine = kernel.node_engine;
    return share;
  }
  std::lock_guard lock(kernel.mutex);
  share.reason = !kernel.node_not_checked_reason.empty() ? kernel.node_not_checked_reason
                 : !kernel.not_checked_reason.empty()
                     ? kernel.not_checked_reason
                     : "its graph node was made by a call that ops-debug does not see";
  return share;
}

void MakeShares(Exec& exec) {
  exec.shares.clear();
  std::map<std::pair<KernelRecord*, bool>, size_t> places;
  for (const auto& [handle, node] : exec.nodes) {
    if (!node.enabled) continue;
    const auto [at, fresh] =
        places.try_emplace({node.function->kernel, node.is_twin}, exec.shares.size());
    if (fresh) exec.shares.emplace_back(node.function, ShareOf(node));
    exec.shares[at->second].second.launches++;
  }
  exec.current = true;
}

}  // namespace

void NoteGraphExec(CUgraphExec handle, CUgraph graph) {
  if (!ChecksAnything() || !handle) return;
  auto exec = std::make_shared<Exec>();
  std::vector<CUgraphNode> parents;
  Collect(graph, parents, exec->nodes);
  Graphs& graphs = TheGraphs();
  std::unique_lock lock(graphs.mutex);
  graphs.execs[handle] = std::move(exec);
}

void ForgetGraphExec(CUgraphExec exec) {
  if (!ChecksAnything()) return;
  Graphs& graphs = TheGraphs();
  std::unique_lock lock(graphs.mutex);
  graphs.execs.erase(exec);
}

void NoteExecNode(CUgraphExec handle, CUgraphNode node, CUfunction function) {
  const std::shared_ptr<Exec> exec = Find(handle);
  if (!exec) return;
  bool is_twin = false;
  FunctionPointer record = FindNodeFunction(function, nullptr, &is_twin);
  if (!record) record = RegisterStranger(function);
  std::lock_guard lock(exec->mutex);
  const auto found = exec->nodes.find(node);
  // After an update from another graph the nodes are that graph's, and the program still names
  // those of the first: the kernel stays the same in practice.
  if (found == exec->nodes.end()) return;
  found->second.function = std::move(record);
  found->second.is_twin = is_twin;
  exec->current = false;
}

void NoteExecNodeEnabled(CUgraphExec handle, CUgraphNode node, bool enabled) {
  const std::shared_ptr<Exec> exec = Find(handle);
  if (!exec) return;
  std::lock_guard lock(exec->mutex);
  const auto found = exec->nodes.find(node);
  if (found == exec->nodes.end()) return;
  found->second.enabled = enabled;
  exec->current = false;
}

void NoteExecChild(CUgraphExec handle, CUgraphNode node, CUgraph child) {
  const std::shared_ptr<Exec> exec = Find(handle);
  if (!exec) return;
  std::vector<CUgraphNode> parents{node};
  std::unordered_map<CUgraphNode, Node> inside;
  Collect(child, parents, inside);
  std::lock_guard lock(exec->mutex);
  std::erase_if(exec->nodes, [&](const auto& entry) {
    const std::vector<CUgraphNode>& around = entry.second.parents;
    return std::find(around.begin(), around.end(), node) != around.end();
  });
  exec->nodes.merge(inside);
  exec->current = false;
}

void NoteConditionalBodies(CUgraphNode node, const CUgraph* bodies, unsigned int count) {
  if (!ChecksAnything() || !bodies) return;
  Graphs& graphs = TheGraphs();
  std::unique_lock lock(graphs.mutex);
  graphs.bodies[node].assign(bodies, bodies + count);
}

bool CountReplay(CUgraphExec handle) {
  const std::shared_ptr<Exec> exec = Find(handle);
  if (!exec) return false;
  std::lock_guard lock(exec->mutex);
  if (!exec->current) MakeShares(*exec);
  for (const auto& [function, share] : exec->shares) {
    if (share.checked) {
      CountChecked(function->module, *function->kernel, share.engine, share.launches);
    } else {
      CountUnchecked(function->module, *function->kernel, share.reason, share.launches);
    }
  }
  return true;
}

}  // namespace ops_debug::interposer
