// Kernel nodes of graphs. What a program captures are twins, as launched. Nodes that it adds or
// changes itself run the original: their parameters can change behind our back. A program that
// reads a node's parameters never sees a twin, because it would hand it back with one parameter too
// few.
#include "interposer/context_state.h"
#include "interposer/hooks.h"
#include "interposer/launch_record.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {
namespace {

void CountNode(CUfunction handle, const char* reason) {
  if (!ChecksMemory() || !handle) return;
  FunctionPointer function = FindFunction(handle);
  if (!function) function = RegisterStranger(handle);
  const std::string& earlier = function->kernel->not_checked_reason;
  CountUnchecked(function->module, *function->kernel, earlier.empty() ? reason : earlier);
}

CUfunction FunctionOf(const CUDA_KERNEL_NODE_PARAMS_v1& parameters) { return parameters.func; }
CUfunction FunctionOf(const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  return parameters.func ? parameters.func : reinterpret_cast<CUfunction>(parameters.kern);
}

template <class Parameters>
void CountAdded(CUresult result, const Parameters* parameters) {
  if (result == CUDA_SUCCESS && parameters)
    CountNode(FunctionOf(*parameters), "explicit graph node");
}
template <class Parameters>
void CountChanged(CUresult result, const Parameters* parameters) {
  if (result == CUDA_SUCCESS && parameters) {
    CountNode(FunctionOf(*parameters), "graph node whose parameters the program set");
  }
}

}  // namespace

OPS_DEBUG_HOOK(cuGraphAddKernelNode, CUgraphNode* node, CUgraph graph,
               const CUgraphNode* dependencies, size_t count,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = real(node, graph, dependencies, count, parameters);
  CountAdded(result, parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphAddKernelNode_v2, CUgraphNode* node, CUgraph graph,
               const CUgraphNode* dependencies, size_t count,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = real(node, graph, dependencies, count, parameters);
  CountAdded(result, parameters);
  return result;
}

OPS_DEBUG_HOOK(cuGraphKernelNodeGetParams, CUgraphNode node,
               CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = real(node, parameters);
  if (result == CUDA_SUCCESS && parameters) {
    if (const CUfunction original = OriginalOf(parameters->func)) parameters->func = original;
  }
  return result;
}
OPS_DEBUG_HOOK(cuGraphKernelNodeGetParams_v2, CUgraphNode node,
               CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = real(node, parameters);
  if (result == CUDA_SUCCESS && parameters) {
    if (const CUfunction original = OriginalOf(parameters->func)) parameters->func = original;
    if (const CUfunction original = OriginalOf(reinterpret_cast<CUfunction>(parameters->kern))) {
      parameters->kern = reinterpret_cast<CUkernel>(original);
    }
  }
  return result;
}

OPS_DEBUG_HOOK(cuGraphKernelNodeSetParams, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = real(node, parameters);
  CountChanged(result, parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphKernelNodeSetParams_v2, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = real(node, parameters);
  CountChanged(result, parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphExecKernelNodeSetParams, CUgraphExec graph, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = real(graph, node, parameters);
  CountChanged(result, parameters);
  return result;
}
OPS_DEBUG_HOOK(cuGraphExecKernelNodeSetParams_v2, CUgraphExec graph, CUgraphNode node,
               const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = real(graph, node, parameters);
  CountChanged(result, parameters);
  return result;
}

}  // namespace ops_debug::interposer
