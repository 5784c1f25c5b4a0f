// Executable graphs: snapshots of graphs, and how they run.
//
// A launch turns nodes into stream work: each chain of nodes is a queue of its own, every node
// comes after the points behind the nodes it depends on, and the stream goes on behind all of them.
// So branches run in whatever order the scheduler chooses. The bodies of conditional nodes are run
// by the node itself, because what they do is known only then. Operations are copied at the
// launch: changing the executable later changes later launches.
#include <algorithm>
#include <map>

#include "emulator/driver/capture.h"
#include "emulator/driver/checked_work.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/messages.h"

namespace ops_debug::emulator {

CUresult MakeExecutable(CUgraph graph, std::shared_ptr<ExecutableGraph>* result) {
  const std::vector<CUgraphNode> order = SortNodes(*graph);
  if (order.empty() && !graph->nodes.empty()) return CUDA_ERROR_INVALID_VALUE;  // a cycle
  auto executable = std::make_shared<ExecutableGraph>();
  executable->conditions = graph->conditions;
  executable->user_objects = CopyReferences(*graph->user_objects);
  std::map<CUgraphNode, size_t> index;
  for (CUgraphNode node : order) {
    ExecutableNode entry;
    entry.source = node;
    entry.content = node->content;
    entry.content.children.clear();
    for (const GraphEdge& edge : node->dependencies) {
      entry.dependencies.push_back(index[edge.node]);
      executable->nodes[index[edge.node]].has_dependents = true;
    }
    for (CUgraph child : node->content.children) {
      std::shared_ptr<ExecutableGraph> body;
      const CUresult status = MakeExecutable(child, &body);
      if (status != CUDA_SUCCESS) return status;
      entry.children.push_back(std::move(body));
    }
    index[node] = executable->nodes.size();
    executable->nodes.push_back(std::move(entry));
  }
  *result = std::move(executable);
  return CUDA_SUCCESS;
}

CUgraph GraphOf(const ExecutableGraph& executable) {
  CUgraph graph = NewGraph();
  std::vector<CUgraphNode> nodes;
  for (const ExecutableNode& entry : executable.nodes) {
    NodeContent content = entry.content;
    if (!entry.enabled) {
      content = {};
      content.params.type = CU_GRAPH_NODE_TYPE_EMPTY;
    }
    for (const auto& child : entry.children) content.children.push_back(GraphOf(*child));
    std::vector<GraphEdge> dependencies;
    for (size_t dependency : entry.dependencies) dependencies.push_back({nodes[dependency], {}});
    CUgraphNode node = nullptr;
    AddNode(graph, dependencies.data(), dependencies.size(), std::move(content), &node);
    nodes.push_back(node);
  }
  return graph;
}

namespace {

// A WHILE node whose condition never becomes false would hang the emulator without a word.
constexpr uint64_t kLoopReportCount = 1'000'000;

uint32_t ValueOf(const Condition& condition) {
  return *reinterpret_cast<const volatile uint32_t*>(condition.address);
}

// Runs the nodes one after the other on the calling worker.
CUresult RunInPlace(Device& device, CUctx_st& context, ExecutableGraph& graph);

CUresult RunConditional(Device& device, CUctx_st& context, ExecutableNode& node) {
  const Condition& condition = *node.content.condition;
  switch (node.content.params.conditional.type) {
    case CU_GRAPH_COND_TYPE_IF: {
      const size_t body = ValueOf(condition) != 0 ? 0 : 1;
      if (body >= node.children.size()) return CUDA_SUCCESS;
      return RunInPlace(device, context, *node.children[body]);
    }
    case CU_GRAPH_COND_TYPE_WHILE:
      for (uint64_t round = 0; ValueOf(condition) != 0; ++round) {
        if (context.sticky_error != CUDA_SUCCESS) return CUDA_SUCCESS;
        if (round == kLoopReportCount) {
          Say("a conditional WHILE node of a graph has run its body " +
              std::to_string(kLoopReportCount) +
              " times and goes on; does a kernel of the body "
              "call cudaGraphSetConditional?");
        }
        const CUresult status = RunInPlace(device, context, *node.children[0]);
        if (status != CUDA_SUCCESS) return status;
      }
      return CUDA_SUCCESS;
    case CU_GRAPH_COND_TYPE_SWITCH: {
      const uint32_t body = ValueOf(condition);
      if (body >= node.children.size()) return CUDA_SUCCESS;
      return RunInPlace(device, context, *node.children[body]);
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult RunInPlace(Device& device, CUctx_st& context, ExecutableGraph& graph) {
  for (ExecutableNode& node : graph.nodes) {
    if (!node.enabled) continue;
    CUresult status = CUDA_SUCCESS;
    if (node.content.condition != nullptr) {
      status = RunConditional(device, context, node);
    } else {
      for (const auto& child : node.children) {
        if (status == CUDA_SUCCESS) status = RunInPlace(device, context, *child);
      }
      for (const Operation& operation : node.content.operations) {
        if (status != CUDA_SUCCESS) break;
        Operation copy = operation;
        copy.context = &context;
        status = Perform(device, copy);
      }
    }
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

// A copy that later changes of the executable do not reach.
std::shared_ptr<ExecutableGraph> Freeze(const ExecutableGraph& graph) {
  auto copy = std::make_shared<ExecutableGraph>(graph);
  for (ExecutableNode& node : copy->nodes) {
    for (auto& child : node.children) child = Freeze(*child);
  }
  return copy;
}

class ConditionalWork : public StreamWork {
 public:
  ConditionalWork(CUctx_st& context, const ExecutableNode& node) : context_(context), node_(node) {
    for (auto& child : node_.children) child = Freeze(*child);
  }
  CUresult Perform(Device& device) override { return RunConditional(device, context_, node_); }

 private:
  CUctx_st& context_;
  ExecutableNode node_;
};

// Gives conditions their default values at the start of a launch.
class ResetWork : public StreamWork {
 public:
  explicit ResetWork(std::vector<std::shared_ptr<Condition>> conditions)
      : conditions_(std::move(conditions)) {}
  CUresult Perform(Device&) override {
    for (const auto& condition : conditions_) {
      if (condition->assign_default)
        *reinterpret_cast<volatile uint32_t*>(condition->address) = condition->default_value;
    }
    return CUDA_SUCCESS;
  }

 private:
  std::vector<std::shared_ptr<Condition>> conditions_;
};

using Points = std::vector<StreamPoint>;
// Of one launch, by number: which nodes come before a place.
using NodeSet = std::vector<bool>;

struct Place {
  Points points;  // to be reached
  NodeSet nodes;

  void Join(const Place& other) {
    points.insert(points.end(), other.points.begin(), other.points.end());
    if (nodes.size() < other.nodes.size()) nodes.resize(other.nodes.size());
    for (size_t i = 0; i < other.nodes.size(); ++i) nodes[i] = nodes[i] || other.nodes[i];
  }
};

// Queues the nodes of one launch.
class Launcher {
 public:
  Launcher(Device& device, CUctx_st& context)
      : device_(device),
        context_(context),
        order_(ActiveChecks() != nullptr ? OrderOfNextWork() : nullptr) {}

  // Returns the place behind the last nodes.
  Place Queue(const ExecutableGraph& graph, const Place& start) {
    std::vector<Place> behind(graph.nodes.size());
    std::vector<std::shared_ptr<StreamOrder>> orders(graph.nodes.size());
    Place end;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ExecutableNode& node = graph.nodes[i];
      Place before;
      for (size_t dependency : node.dependencies) before.Join(behind[dependency]);
      if (node.dependencies.empty()) before = start;
      // A chain stays in one queue.
      if (!node.dependencies.empty())
        orders[i] = std::exchange(orders[node.dependencies.front()], nullptr);
      behind[i] = node.enabled ? QueueNode(node, before, orders[i]) : before;
      if (!node.has_dependents) end.Join(behind[i]);
    }
    return graph.nodes.empty() ? start : end;
  }

 private:
  Place QueueNode(const ExecutableNode& node, const Place& before,
                  std::shared_ptr<StreamOrder>& order) {
    if (node.content.condition != nullptr) {
      Operation operation;
      operation.work =
          std::shared_ptr<StreamWork>(std::make_shared<ConditionalWork>(context_, node));
      return Add(std::move(operation), before, order);
    }
    if (!node.children.empty()) return Queue(*node.children.front(), before);
    Place place = before;
    for (const Operation& operation : node.content.operations) {
      Operation copy = operation;
      Prepare(copy);
      place = Add(std::move(copy), place, order);
    }
    return place;
  }

  // What Submit does for work in streams.
  static void Prepare(Operation& operation) {
    if (auto* record = std::get_if<EventRecordOperation>(&operation.work)) {
      CUevent_st* event = TheDriver().events.Find(record->event);
      record->mark = std::make_shared<EventMark>();
      if (event != nullptr) event->mark = record->mark;
    } else if (auto* wait = std::get_if<EventWaitOperation>(&operation.work)) {
      const CUevent_st* event = TheDriver().events.Find(wait->event);
      if (event != nullptr && event->mark != nullptr) operation.after.push_back(event->mark->point);
    }
  }

  Place Add(Operation operation, const Place& before, std::shared_ptr<StreamOrder>& order) {
    if (order == nullptr) order = NewOrder(context_);
    operation.after.insert(operation.after.end(), before.points.begin(), before.points.end());
    const auto* record = std::get_if<EventRecordOperation>(&operation.work);
    const std::shared_ptr<EventMark> mark = record != nullptr ? record->mark : nullptr;
    if (mark != nullptr) mark->context = &context_;
    Place behind{.points = {}, .nodes = before.nodes};
    if (order_ != nullptr) {
      DeviceOperation in_graph = *order_;
      in_graph.id.reserved = ++nodes_;
      in_graph.ancestors = std::make_shared<const NodeSet>(before.nodes);
      operation.order = std::make_shared<const DeviceOperation>(std::move(in_graph));
      behind.nodes.resize(std::max<size_t>(behind.nodes.size(), nodes_ + size_t{1}));
      behind.nodes[nodes_] = true;
    }
    behind.points = {Enqueue(context_, order, std::move(operation))};
    return behind;
  }

  Device& device_;
  CUctx_st& context_;
  const std::shared_ptr<const DeviceOperation> order_;  // of the launch, if it is checked
  uint32_t nodes_ = 0;                                  // numbered
};

void LetGo() {
  std::erase_if(TheGraphBook().flights,
                [](const GraphBook::Flight& flight) { return ArePointsReached(flight.points); });
}

// False if the module of a kernel has been unloaded.
bool HasItsKernels(const ExecutableGraph& graph) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const ExecutableNode& node) {
    for (const Operation& operation : node.content.operations) {
      const auto* kernel = std::get_if<KernelOperation>(&operation.work);
      if (kernel != nullptr && TheDriver().functions.Find(kernel->function) == nullptr)
        return false;
    }
    return std::all_of(node.children.begin(), node.children.end(),
                       [](const auto& child) { return HasItsKernels(*child); });
  });
}

// Memory that an earlier launch left allocated.
CUresult CheckMemory(CUgraphExec_st& executable) {
  for (ExecutableNode& node : executable.graph->nodes) {
    if (node.content.params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const bool is_freed =
        std::any_of(executable.graph->nodes.begin(), executable.graph->nodes.end(),
                    [&](const ExecutableNode& other) {
                      return other.content.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
                             other.content.allocation == node.content.allocation;
                    });
    if (is_freed || !node.content.allocation->live) continue;
    // Freed in stream order by AUTO_FREE_ON_LAUNCH: the allocation node simply opens it again.
    if ((executable.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(CUgraphExec handle, CUstream stream_handle) {
  return InContext([&](Device& device, CUctx_st& current) -> CUresult {
    CUgraphExec_st* executable = TheGraphBook().executables.Find(handle);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUstream_st* stream = FindStream(device.driver, current, stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (IsCapturing(*stream)) {
      CUgraph graph = GraphOf(*executable->graph);
      const CUresult status = CaptureGraph(*stream, graph);
      DestroyGraph(graph);  // the node has a clone
      return status;
    }
    LetGo();
    if (!HasItsKernels(*executable->graph)) return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = CheckMemory(*executable);
    if (status != CUDA_SUCCESS) return status;
    CUctx_st& context = *stream->context;
    StreamPoint start;
    Operation begin;
    // An executable graph runs after its own earlier launches.
    begin.after = executable->last_launch;
    if (!executable->graph->conditions.empty()) {
      begin.work =
          std::shared_ptr<StreamWork>(std::make_shared<ResetWork>(executable->graph->conditions));
    }
    status = Submit(*context.device, current, stream_handle, std::move(begin), &start);
    if (status != CUDA_SUCCESS) return status;
    Operation end;
    end.after = Launcher(*context.device, context)
                    .Queue(*executable->graph, {.points = {start}, .nodes = {}})
                    .points;
    executable->last_launch = end.after;
    TheGraphBook().flights.push_back({end.after, executable->graph});
    // Refused if a kernel has faulted meanwhile: the next call says so, as after any launch.
    StreamPoint behind;
    Submit(*context.device, current, stream_handle, std::move(end), &behind);
    return CUDA_SUCCESS;
  });
}

// body(CUgraphExec_st&) for a live executable.
template <class Body>
CUresult WithExecutable(CUgraphExec handle, Body body) {
  return OnDevice([&](Device&) -> CUresult {
    CUgraphExec_st* executable = TheGraphBook().executables.Find(handle);
    return executable != nullptr ? body(*executable) : CUDA_ERROR_INVALID_VALUE;
  });
}

// The node that was made from `source`, in child graphs too.
ExecutableNode* FindIn(ExecutableGraph& graph, CUgraphNode source) {
  for (ExecutableNode& node : graph.nodes) {
    if (node.source == source) return &node;
    for (const auto& child : node.children) {
      if (ExecutableNode* found = FindIn(*child, source)) return found;
    }
  }
  return nullptr;
}

// Handles of a clone's nodes stand for those of the original.
ExecutableNode* FindNodeOf(CUgraphExec_st& executable, CUgraphNode source) {
  return FindIn(*executable.graph, source);
}

CUresult Instantiate(CUgraphExec* result, CUgraph handle, cuuint64_t flags,
                     CUgraphInstantiateResult* outcome) {
  return InContext([&](Device&, CUctx_st& context) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(handle);
    constexpr cuuint64_t kKnown =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (outcome != nullptr) *outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result == nullptr || graph == nullptr || (flags & ~kKnown) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
      Say("cuGraphInstantiate: launching graphs from kernels is not supported by this device");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    auto executable = std::make_unique<CUgraphExec_st>();
    executable->context = &context;
    executable->flags = flags;
    const CUresult status = MakeExecutable(graph, &executable->graph);
    if (status != CUDA_SUCCESS) {
      if (outcome != nullptr) *outcome = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
      return status;
    }
    if (outcome != nullptr) *outcome = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *result = TheGraphBook().executables.Add(std::move(executable));
    return CUDA_SUCCESS;
  });
}

// Gives the executable's node new parameters.
CUresult SetParams(CUgraphExec handle, CUgraphNode source, CUgraphNodeParams params) {
  return WithExecutable(handle, [&](CUgraphExec_st& executable) -> CUresult {
    ExecutableNode* node = FindNodeOf(executable, source);
    if (node == nullptr || node->content.params.type != params.type)
      return CUDA_ERROR_INVALID_VALUE;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph_st* child = TheGraphBook().graphs.Find(params.graph.graph);
      std::shared_ptr<ExecutableGraph> body;
      if (child == nullptr || MakeExecutable(child, &body) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
      if (body->nodes.size() != node->children.front()->nodes.size())
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
      node->children = {std::move(body)};
      return CUDA_SUCCESS;
    }
    NodeContent content;
    const CUresult status = MakeContent(nullptr, &params, node->content.attributes, &content);
    if (status != CUDA_SUCCESS) return status;
    CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (!MayReplace(node->content, content, &why)) return CUDA_ERROR_INVALID_VALUE;
    node->content = std::move(content);
    return CUDA_SUCCESS;
  });
}

using UpdateInfo = CUgraphExecUpdateResultInfo;

// Checks that `from` fits and collects its contents; nodes pair up in topological order.
bool Compare(ExecutableGraph& to, CUgraph from, UpdateInfo* info,
             std::vector<std::pair<ExecutableNode*, CUgraphNode>>* pairs) {
  std::shared_ptr<ExecutableGraph> fresh;
  const auto fail = [&](CUgraphExecUpdateResult result, CUgraphNode node, CUgraphNode source) {
    info->result = result;
    info->errorNode = node;
    info->errorFromNode = source;
    return false;
  };
  if (MakeExecutable(from, &fresh) != CUDA_SUCCESS || fresh->nodes.size() != to.nodes.size())
    return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr);
  for (size_t i = 0; i < to.nodes.size(); ++i) {
    ExecutableNode& mine = to.nodes[i];
    const ExecutableNode& other = fresh->nodes[i];
    if (mine.dependencies != other.dependencies)
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other.source, nullptr);
    CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (!MayReplace(mine.content, other.content, &why)) return fail(why, other.source, nullptr);
    if (mine.children.size() != other.source->content.children.size())
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other.source, nullptr);
    for (size_t k = 0; k < mine.children.size(); ++k) {
      if (!Compare(*mine.children[k], other.source->content.children[k], info, pairs)) return false;
    }
    pairs->push_back({&mine, other.source});
  }
  return true;
}

CUresult UpdateExecutable(CUgraphExec handle, CUgraph graph_handle, UpdateInfo* info) {
  return WithExecutable(handle, [&](CUgraphExec_st& executable) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(graph_handle);
    if (graph == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *info = {};
    std::vector<std::pair<ExecutableNode*, CUgraphNode>> pairs;
    if (!Compare(*executable.graph, graph, info, &pairs))
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (const auto& [node, source] : pairs) {
      node->content = source->content;
      node->content.children.clear();
    }
    return CUDA_SUCCESS;
  });
}

template <class Fill>
CUresult SetTyped(CUgraphExec executable, CUgraphNode node, CUgraphNodeType type, Fill fill) {
  CUgraphNodeParams params{};
  params.type = type;
  fill(params);
  return SetParams(executable, node, params);
}

CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS_v3 wide{};
  static_assert(sizeof(params) <= sizeof(wide));
  __builtin_memcpy(&wide, &params, sizeof(params));
  return wide;
}

CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  CUDA_KERNEL_NODE_PARAMS_v3 wide{};
  static_assert(sizeof(params) == sizeof(wide));
  __builtin_memcpy(&wide, &params, sizeof(params));
  return wide;
}

CUDA_MEMSET_NODE_PARAMS_v2 Widen(const CUDA_MEMSET_NODE_PARAMS_v1& params, CUcontext context) {
  CUDA_MEMSET_NODE_PARAMS_v2 wide{};
  __builtin_memcpy(&wide, &params, sizeof(params));
  wide.ctx = context;
  return wide;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* result, CUgraph graph,
                                     unsigned long long flags) {  // NOLINT(google-runtime-int)
  return Instantiate(result, graph, flags, nullptr);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* result, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  return Instantiate(result, graph, params->flags, &params->result_out);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* result, CUgraph graph, CUgraphNode* error_node,
                               char* log, size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return Instantiate(result, graph, 0, nullptr);
}

CUresult cuGraphInstantiate(CUgraphExec* result, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  return cuGraphInstantiate_v2(result, graph, error_node, log, log_bytes);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  return WithExecutable(handle, [&](CUgraphExec_st& executable) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = executable.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return WithExecutable(handle, [](CUgraphExec_st& executable) {
    TheGraphBook().executables.Remove(&executable);
    LetGo();
    return CUDA_SUCCESS;
  });
}

// Everything is where it has to be already.
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (TheGraphBook().executables.Find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return CheckStream(device, context, stream);
  });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return LaunchGraph(executable, stream);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                              CUgraphExecUpdateResultInfo* info) {
  return UpdateExecutable(executable, graph, info);
}

CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult status = UpdateExecutable(executable, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return status;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                  CUgraphNodeParams* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetParams(executable, node, *params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_KERNEL,
                  [&](CUgraphNodeParams& params) { params.kernel = Widen(*kernel); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_KERNEL,
                  [&](CUgraphNodeParams& params) { params.kernel = Widen(*kernel); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D* copy, CUcontext context) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_MEMCPY, [&](CUgraphNodeParams& params) {
    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = *copy;
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
  if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_MEMSET,
                  [&](CUgraphNodeParams& params) { params.memset = Widen(*fill, context); });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* host) {
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_HOST, [&](CUgraphNodeParams& params) {
    params.host = {host->fn, host->userData};
  });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                            CUgraph child) {
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_GRAPH,
                  [&](CUgraphNodeParams& params) { params.graph.graph = child; });
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                            CUevent event) {
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                  [&](CUgraphNodeParams& params) { params.eventRecord.event = event; });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                  [&](CUgraphNodeParams& params) { params.eventWait.event = event; });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
  if (batch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(executable, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                  [&](CUgraphNodeParams& params) {
                    params.memOp = {batch->ctx, batch->count, batch->paramArray, batch->flags};
                  });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode source, unsigned int enabled) {
  return WithExecutable(handle, [&](CUgraphExec_st& executable) -> CUresult {
    ExecutableNode* node = FindNodeOf(executable, source);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (node->content.params.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
      case CU_GRAPH_NODE_TYPE_MEMCPY:
      case CU_GRAPH_NODE_TYPE_MEMSET:
        node->enabled = enabled != 0;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode source, unsigned int* enabled) {
  return WithExecutable(handle, [&](CUgraphExec_st& executable) -> CUresult {
    const ExecutableNode* node = FindNodeOf(executable, source);
    if (node == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = node->enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuGraphInstantiateWithParams, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuGraphUpload, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuGraphLaunch, ptsz, 2)
