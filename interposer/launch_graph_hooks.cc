// Kernel nodes of graphs. What a program captures are twins, as launched. Nodes that it adds or
// changes itself get the twin, too: the driver copies the parameters, ours included, when it is
// called. Their bounds are left to shadow memory, because the graph may run when other allocations
// live there. A program that reads a node's parameters sees its own kernel: it would hand a twin
// back with one parameter too few.
#include "interposer/graph_races.h"
#include "interposer/hooks.h"
#include "interposer/init_state.h"
#include "interposer/launch_graph.h"
#include "interposer/launch_path.h"
#include "interposer/session.h"
#include "interposer/shadow_updates.h"
#include "interposer/stream_order_graphs.h"

namespace ops_debug::interposer {
namespace {

// The versions of kernel node parameters differ in whether a CUkernel may stand in for the
// function.
CUfunction HandleIn(const CUDA_KERNEL_NODE_PARAMS_v1& parameters) { return parameters.func; }
template <class Parameters>
CUfunction HandleIn(const Parameters& parameters) {
  return parameters.func ? parameters.func : reinterpret_cast<CUfunction>(parameters.kern);
}
void PutHandle(CUDA_KERNEL_NODE_PARAMS_v1& parameters, CUfunction handle) {
  parameters.func = handle;
}
template <class Parameters>
void PutHandle(Parameters& parameters, CUfunction handle) {
  if (parameters.func) {
    parameters.func = handle;
  } else {
    parameters.kern = reinterpret_cast<CUkernel>(handle);
  }
}
CUcontext ContextIn(const CUDA_KERNEL_NODE_PARAMS_v1&) { return nullptr; }
template <class Parameters>
CUcontext ContextIn(const Parameters& parameters) {
  return parameters.func ? nullptr : parameters.ctx;
}

// Makes the program's call, `call(parameters)`, with the twin's parameters if there is one. On
// success `*used` is the function that the node has now.
template <class Parameters, class Call>
CUresult WithTwin(const char* api, const Parameters* parameters, Call call,
                  CUfunction* used = nullptr) {
  if (!parameters) return call(parameters);
  const LaunchRequest request{
      .api = api,
      .handle = HandleIn(*parameters),
      .grid = {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
      .block = {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
      .dynamic_shared_bytes = parameters->sharedMemBytes,
      .added_node = true,
      .node_context = ContextIn(*parameters),
      .parameters = parameters->kernelParams,
      .extra = parameters->extra};
  return Launch(request, [&](CUfunction function, void** values, void** extra) {
    if (used) *used = function;
    if (function == request.handle) return call(parameters);
    Parameters changed = *parameters;
    PutHandle(changed, function);
    changed.kernelParams = values;
    changed.extra = extra;
    return call(&changed);
  });
}

// The same for the call that takes nodes of any type.
template <class Call>
CUresult WithTwinIfKernel(const char* api, CUgraphNodeParams* parameters, Call call,
                          CUfunction* used = nullptr) {
  if (!parameters || parameters->type != CU_GRAPH_NODE_TYPE_KERNEL) return call(parameters);
  return WithTwin(
      api, &parameters->kernel,
      [&](const CUDA_KERNEL_NODE_PARAMS_v3* kernel) {
        if (kernel == &parameters->kernel) return call(parameters);
        CUgraphNodeParams changed = *parameters;
        changed.kernel = *kernel;
        return call(&changed);
      },
      used);
}

void ShowOriginal(CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  bool is_twin = false;
  const FunctionPointer function = FindNodeFunction(parameters->func, nullptr, &is_twin);
  if (!function || !is_twin) return;
  if (const CUfunction original = NodeHandle(*function)) parameters->func = original;
}
void ShowOriginal(CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  bool is_twin = false;
  const FunctionPointer function = FindNodeFunction(parameters->func, parameters->kern, &is_twin);
  if (!function || !is_twin) return;
  if (parameters->func) {
    if (const CUfunction original = NodeHandle(*function)) parameters->func = original;
  }
  if (parameters->kern && !function->owner) {
    parameters->kern =
        function->source ? function->source : reinterpret_cast<CUkernel>(function->handle);
  }
}

}  // namespace

OPS_DEBUG_HOOK(cuGraphAddKernelNode, CUgraphNode* node, CUgraph graph,
               const CUgraphNode* dependencies, size_t count,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return WithTwin("cuGraphAddKernelNode", parameters,
                  [&](const auto* given) { return real(node, graph, dependencies, count, given); });
}
OPS_DEBUG_HOOK(cuGraphAddKernelNode_v2, CUgraphNode* node, CUgraph graph,
               const CUgraphNode* dependencies, size_t count,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return WithTwin("cuGraphAddKernelNode", parameters,
                  [&](const auto* given) { return real(node, graph, dependencies, count, given); });
}

namespace {

void NoteIfConditional(CUresult result, const CUgraphNode* node,
                       const CUgraphNodeParams* parameters) {
  if (result == CUDA_SUCCESS && node && parameters &&
      parameters->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    NoteConditionalBodies(*node, parameters->conditional.phGraph_out, parameters->conditional.size);
  }
}

}  // namespace

OPS_DEBUG_HOOK(cuGraphAddNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
               size_t count, CUgraphNodeParams* parameters) {
  const CUresult result = WithTwinIfKernel(
      "cuGraphAddNode", parameters,
      [&](CUgraphNodeParams* given) { return real(node, graph, dependencies, count, given); });
  NoteIfConditional(result, node, parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphAddNode_v2, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
               const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* parameters) {
  const CUresult result =
      WithTwinIfKernel("cuGraphAddNode", parameters, [&](CUgraphNodeParams* given) {
        return real(node, graph, dependencies, edges, count, given);
      });
  NoteIfConditional(result, node, parameters);
  return result;
}

OPS_DEBUG_HOOK(cuGraphKernelNodeGetParams, CUgraphNode node,
               CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = real(node, parameters);
  if (result == CUDA_SUCCESS && parameters && ChecksAnything()) ShowOriginal(parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphKernelNodeGetParams_v2, CUgraphNode node,
               CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = real(node, parameters);
  if (result == CUDA_SUCCESS && parameters && ChecksAnything()) ShowOriginal(parameters);
  return result;
}

OPS_DEBUG_HOOK(cuGraphKernelNodeSetParams, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return WithTwin("cuGraphKernelNodeSetParams", parameters,
                  [&](const auto* given) { return real(node, given); });
}
OPS_DEBUG_HOOK(cuGraphKernelNodeSetParams_v2, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return WithTwin("cuGraphKernelNodeSetParams", parameters,
                  [&](const auto* given) { return real(node, given); });
}
OPS_DEBUG_HOOK(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams* parameters) {
  return WithTwinIfKernel("cuGraphNodeSetParams", parameters,
                          [&](CUgraphNodeParams* given) { return real(node, given); });
}

namespace {

template <class Parameters>
CUresult SetInExec(CUgraphExec graph, CUgraphNode node, const Parameters& given, CUresult result) {
  if (result == CUDA_SUCCESS) RacesExecNodeSet(graph, node, SettingsOf(given));
  return result;
}

}  // namespace

OPS_DEBUG_HOOK(cuGraphExecKernelNodeSetParams, CUgraphExec graph, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CUfunction used = nullptr;
  const CUresult result = WithTwin(
      "cuGraphExecKernelNodeSetParams", parameters,
      [&](const auto* given) { return SetInExec(graph, node, *given, real(graph, node, given)); },
      &used);
  if (result == CUDA_SUCCESS && used) NoteExecNode(graph, node, used);
  return result;
}
OPS_DEBUG_HOOK(cuGraphExecKernelNodeSetParams_v2, CUgraphExec graph, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  CUfunction used = nullptr;
  const CUresult result = WithTwin(
      "cuGraphExecKernelNodeSetParams", parameters,
      [&](const auto* given) { return SetInExec(graph, node, *given, real(graph, node, given)); },
      &used);
  if (result == CUDA_SUCCESS && used) NoteExecNode(graph, node, used);
  return result;
}
OPS_DEBUG_HOOK(cuGraphExecNodeSetParams, CUgraphExec graph, CUgraphNode node,
               CUgraphNodeParams* parameters) {
  CUfunction used = nullptr;
  const CUresult result = WithTwinIfKernel(
      "cuGraphExecNodeSetParams", parameters,
      [&](CUgraphNodeParams* given) {
        const CUresult set = real(graph, node, given);
        return given && given->type == CU_GRAPH_NODE_TYPE_KERNEL
                   ? SetInExec(graph, node, given->kernel, set)
                   : set;
      },
      &used);
  if (result == CUDA_SUCCESS && used) NoteExecNode(graph, node, used);
  if (result == CUDA_SUCCESS && parameters && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    NoteExecChild(graph, node, parameters->graph.graph);
    RacesExecChildSet(graph);
  }
  return result;
}
OPS_DEBUG_HOOK(cuGraphExecChildGraphNodeSetParams, CUgraphExec graph, CUgraphNode node,
               CUgraph child) {
  const CUresult result = real(graph, node, child);
  if (result == CUDA_SUCCESS) {
    NoteExecChild(graph, node, child);
    RacesExecChildSet(graph);
  }
  return result;
}
OPS_DEBUG_HOOK(cuGraphNodeSetEnabled, CUgraphExec graph, CUgraphNode node, unsigned int enabled) {
  const CUresult result = real(graph, node, enabled);
  if (result == CUDA_SUCCESS) NoteExecNodeEnabled(graph, node, enabled != 0);
  return result;
}

// A node that device code may change gets its original back: whether the driver lets the device
// write parameters of a kernel that has more of them than the program knows is not documented.
OPS_DEBUG_HOOK(cuGraphKernelNodeSetAttribute, CUgraphNode node, CUkernelNodeAttrID attribute,
               const CUkernelNodeAttrValue* value) {
  if (ChecksAnything() && value && attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
      value->deviceUpdatableKernelNode.deviceUpdatable != 0) {
    CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
    bool is_twin = false;
    if (OPS_DEBUG_REAL(cuGraphKernelNodeGetParams_v2)(node, &parameters) == CUDA_SUCCESS) {
      const FunctionPointer function = FindNodeFunction(parameters.func, parameters.kern, &is_twin);
      if (function && is_twin) {
        ShowOriginal(&parameters);
        if (OPS_DEBUG_REAL(cuGraphKernelNodeSetParams_v2)(node, &parameters) == CUDA_SUCCESS) {
          std::lock_guard lock(function->kernel->mutex);
          function->kernel->node_not_checked_reason = kDeviceUpdatable;
        }
      }
    }
  }
  return real(node, attribute, value);
}

// ABIs of three generations.
namespace {

CUresult Instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph,
                      unsigned long long flags) {
  if (result != CUDA_SUCCESS || !exec) return result;
  NoteGraphExec(*exec, graph);
  OrderGraphInstantiated(*exec, graph);
  RacesGraphInstantiated(*exec, graph, flags);
  return result;
}

CUresult Updated(CUresult result, CUgraphExec exec, CUgraph graph) {
  if (result != CUDA_SUCCESS) return result;
  NoteGraphExec(exec, graph);
  OrderGraphInstantiated(exec, graph);
  RacesGraphUpdated(exec, graph);
  return result;
}

}  // namespace

OPS_DEBUG_HOOK(cuGraphInstantiate, CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node,
               char* log, size_t log_bytes) {
  return Instantiated(real(exec, graph, error_node, log, log_bytes), exec, graph, 0);
}
OPS_DEBUG_HOOK_AS(cuGraphInstantiate_v2, cuGraphInstantiate)
OPS_DEBUG_HOOK(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph,
               unsigned long long flags) {
  return Instantiated(real(exec, graph, flags), exec, graph, flags);
}
OPS_DEBUG_HOOK(cuGraphInstantiateWithParams, CUgraphExec* exec, CUgraph graph,
               CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return Instantiated(real(exec, graph, parameters), exec, graph,
                      parameters ? parameters->flags : 0);
}
OPS_DEBUG_HOOK_AS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams)

OPS_DEBUG_HOOK(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
               CUgraphExecUpdateResult* outcome) {
  return Updated(real(exec, graph, error_node, outcome), exec, graph);
}
OPS_DEBUG_HOOK(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph,
               CUgraphExecUpdateResultInfo* outcome) {
  return Updated(real(exec, graph, outcome), exec, graph);
}

OPS_DEBUG_HOOK(cuGraphExecDestroy, CUgraphExec exec) {
  const CUresult result = real(exec);
  if (result == CUDA_SUCCESS) {
    ForgetGraphExec(exec);
    OrderGraphDestroyed(exec);
    RacesGraphExecDestroyed(exec);
  }
  return result;
}

OPS_DEBUG_HOOK(cuGraphDestroy, CUgraph graph) {
  switch (RacesGraphDestroyed(graph)) {
    case GraphEnd::kKept:
      return CUDA_SUCCESS;
    case GraphEnd::kKeptAlready:
      return CUDA_ERROR_INVALID_VALUE;
    case GraphEnd::kNow:
      break;
  }
  return real(graph);
}
OPS_DEBUG_HOOK(cuGraphDestroyNode, CUgraphNode node) {
  RacesGraphNodeDestroyed(node);
  return real(node);
}

OPS_DEBUG_HOOK(cuGraphLaunch, CUgraphExec exec, CUstream stream) {
  if (!ChecksAnything()) return real(exec, stream);
  const CUstream explicit_stream = ExplicitStream(stream, real.default_stream());
  const ContextPointer context = StreamContextState(stream, real.default_stream());
  const bool captured = IsCapturing(explicit_stream);
  if (context && !context->lost) {
    ApplyAllShadowUpdates(*context, explicit_stream);
    if (context->init && !captured)
      context->init->AllWritten(explicit_stream, "a graph runs, whose copies are not followed");
    context->launches.fetch_add(1, std::memory_order_relaxed);
  }
  if (captured) TakeTicketsFromGraph(exec);
  GraphOrder order(exec, explicit_stream);
  std::unique_lock<std::mutex> tickets;
  if (context && !context->lost && !captured)
    tickets = GiveTicketsToGraph(exec, *context, order.work());
  const CUresult result = real(exec, stream);
  if (tickets) tickets.unlock();
  order.Submitted(result);
  // A graph that is launched into a capture becomes a child node of another.
  if (result == CUDA_SUCCESS && !captured && !CountReplay(exec)) {
    SendOnce(DiagnosticEvent{
        .severity = proto_enums::Severity::kNote,
        .text = "a graph was launched that ops-debug did not see being instantiated; its kernels "
                "are missing in the coverage",
        .hint = ""});
  }
  return result;
}
OPS_DEBUG_HOOK_AS(cuGraphLaunch_ptsz, cuGraphLaunch)

}  // namespace ops_debug::interposer
