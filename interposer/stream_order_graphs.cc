#include "interposer/stream_order_graphs.h"

#include <mutex>
#include <unordered_map>

#include "interposer/context_state.h"

namespace ops_debug::interposer {
namespace {

struct Outside {
  std::vector<CUevent> recorded, awaited;
  bool waits_unseen = false;
};

struct Exec {
  Outside outside;
  shadow::OrderPoint behind;  // its latest launch
};

// Never destroyed: hooks run until the very end of the process.
struct Execs {
  std::mutex mutex;
  std::unordered_map<CUgraphExec, Exec> by_handle;
};
Execs& TheExecs() {
  static auto* execs = new Execs;
  return *execs;
}

void Collect(CUgraph graph, Outside* outside, int depth) {
  constexpr int kDeepest = 16;
  size_t count = 0;
  if (depth > kDeepest || OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS)
    return;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nodes.data(), &count) != CUDA_SUCCESS)
    return;
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (OPS_DEBUG_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) continue;
    CUevent event = nullptr;
    CUgraph child = nullptr;
    switch (type) {
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        if (OPS_DEBUG_REAL(cuGraphEventRecordNodeGetEvent)(node, &event) == CUDA_SUCCESS)
          outside->recorded.push_back(event);
        break;
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        if (OPS_DEBUG_REAL(cuGraphEventWaitNodeGetEvent)(node, &event) == CUDA_SUCCESS)
          outside->awaited.push_back(event);
        break;
      case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        outside->waits_unseen = true;
        break;
      case CU_GRAPH_NODE_TYPE_GRAPH:
        if (OPS_DEBUG_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
          Collect(child, outside, depth + 1);
        break;
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        // The driver does not tell its bodies again.
        outside->waits_unseen = true;
        break;
      default:
        break;
    }
  }
}

}  // namespace

void OrderGraphInstantiated(CUgraphExec exec, CUgraph graph) {
  if (!ChecksStreamOrder() || !exec) return;
  Outside outside;
  Collect(graph, &outside, 0);
  Execs& execs = TheExecs();
  std::lock_guard lock(execs.mutex);
  execs.by_handle[exec].outside = std::move(outside);
}

void OrderGraphDestroyed(CUgraphExec exec) {
  if (!ChecksStreamOrder()) return;
  Execs& execs = TheExecs();
  std::lock_guard lock(execs.mutex);
  execs.by_handle.erase(exec);
}

GraphOrder::GraphOrder(CUgraphExec exec, CUstream explicit_stream)
    : exec_(exec), stream_(explicit_stream) {
  // Launched into a capture, it becomes a part of another graph.
  if (!ChecksStreamOrder() || IsCapturing(explicit_stream)) return;
  active_ = true;
  Exec known;
  bool seen = false;
  {
    Execs& execs = TheExecs();
    std::lock_guard lock(execs.mutex);
    const auto found = execs.by_handle.find(exec);
    seen = found != execs.by_handle.end();
    if (seen) known = found->second;
  }
  OrderStreamAfter(stream_, known.behind);
  for (const CUevent event : known.outside.awaited) OrderEventAwaited(stream_, event, 0);
  if (!seen || known.outside.waits_unseen) OrderUnseenWait(stream_);
  work_.emplace(WorkDescription{.api = "cuGraphLaunch"}, stream_);
}

void GraphOrder::Submitted(CUresult result) {
  if (!active_) return;
  work_->Submitted(result);
  if (result != CUDA_SUCCESS) return;
  const shadow::OrderPoint behind = StreamPointNow(stream_);
  std::vector<CUevent> recorded;
  {
    Execs& execs = TheExecs();
    std::lock_guard lock(execs.mutex);
    Exec& exec = execs.by_handle[exec_];
    exec.behind = behind;
    recorded = exec.outside.recorded;
  }
  // Each is reached before the whole graph is done; taking it for later loses no order.
  for (const CUevent event : recorded) OrderEventRecorded(event, stream_, 0);
}

}  // namespace ops_debug::interposer
