// Nodes as programs make, read and change them: one general pair of functions, and a typed pair per
// kind that older programs use.
#include "emulator/driver/graph.h"
#include "emulator/driver/messages.h"

namespace ops_debug::emulator {
namespace {

CUresult Add(CUgraphNode* result, CUgraph handle, const std::vector<GraphEdge>& dependencies,
             CUgraphNodeParams* params) {
  return OnDevice([&](Device&) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(handle);
    if (result == nullptr || graph == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult status = CheckEdges(graph, dependencies.data(), dependencies.size());
    if (status != CUDA_SUCCESS) return status;
    NodeContent content;
    status = MakeContent(graph, params, {}, &content);
    if (status != CUDA_SUCCESS) return status;
    return AddNode(graph, dependencies.data(), dependencies.size(), std::move(content), result);
  });
}

CUresult AddGeneral(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                    const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Guarded([&] { return Add(result, graph, EdgesOf(nodes, data, count), params); });
}

template <class Fill>
CUresult AddTyped(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes, size_t count,
                  CUgraphNodeType type, Fill fill) {
  CUgraphNodeParams params{};
  params.type = type;
  fill(params);
  return AddGeneral(result, graph, nodes, nullptr, count, &params);
}

// body(CUgraphNode_st&) for a live node of that type.
template <class Body>
CUresult WithNode(CUgraphNode handle, CUgraphNodeType type, Body body) {
  return OnDevice([&](Device&) -> CUresult {
    const CUgraphNode node = FindNode(handle);
    if (node == nullptr || node->content.params.type != type) return CUDA_ERROR_INVALID_VALUE;
    return body(*node);
  });
}

// Writes what `choose` takes of the node's parameters to `*out`.
template <class T, class Choose>
CUresult Get(CUgraphNode handle, CUgraphNodeType type, T* out, Choose choose) {
  return WithNode(handle, type, [&](CUgraphNode_st& node) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = choose(Describe(node.content));
    return CUDA_SUCCESS;
  });
}

CUresult Set(CUgraphNode handle, CUgraphNodeParams params) {
  return WithNode(handle, params.type, [&](CUgraphNode_st& node) -> CUresult {
    switch (params.type) {
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      case CU_GRAPH_NODE_TYPE_GRAPH:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        break;
    }
    NodeContent content;
    const CUresult status = MakeContent(node.graph, &params, node.content.attributes, &content);
    if (status == CUDA_SUCCESS) node.content = std::move(content);
    return status;
  });
}

template <class Fill>
CUresult SetTyped(CUgraphNode node, CUgraphNodeType type, Fill fill) {
  CUgraphNodeParams params{};
  params.type = type;
  fill(params);
  return Set(node, params);
}

// The versions of a struct that only grew at its end.
template <class To, class From>
To Resized(const From& from) {
  To to{};
  __builtin_memcpy(&to, &from, sizeof(to) < sizeof(from) ? sizeof(to) : sizeof(from));
  return to;
}

CUresult RefuseSemaphores(const char* name) {
  Say(std::string(name) + ": external semaphores are not supported by this device");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuGraphAddNode_v2(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                           const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  return AddGeneral(result, graph, nodes, data, count, params);
}

CUresult cuGraphAddNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes, size_t count,
                        CUgraphNodeParams* params) {
  return AddGeneral(result, graph, nodes, nullptr, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return params != nullptr ? Set(node, *params) : CUDA_ERROR_INVALID_VALUE;
}

// ---- Kernels

CUresult cuGraphAddKernelNode_v2(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_KERNEL,
                  [&](CUgraphNodeParams& params) {
                    params.kernel = Resized<CUDA_KERNEL_NODE_PARAMS_v3>(*kernel);
                  });
}

CUresult cuGraphAddKernelNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_KERNEL,
                  [&](CUgraphNodeParams& params) {
                    params.kernel = Resized<CUDA_KERNEL_NODE_PARAMS_v3>(*kernel);
                  });
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [](const CUgraphNodeParams& params) {
    return Resized<CUDA_KERNEL_NODE_PARAMS_v2>(params.kernel);
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [](const CUgraphNodeParams& params) {
    auto kernel = Resized<CUDA_KERNEL_NODE_PARAMS_v1>(params.kernel);
    // This version has no other field for a library's kernel.
    if (kernel.func == nullptr) kernel.func = reinterpret_cast<CUfunction>(params.kernel.kern);
    return kernel;
  });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNodeParams& params) {
    params.kernel = Resized<CUDA_KERNEL_NODE_PARAMS_v3>(*kernel);
  });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* kernel) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNodeParams& params) {
    params.kernel = Resized<CUDA_KERNEL_NODE_PARAMS_v3>(*kernel);
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue* value) {
  return WithNode(handle, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNode_st& node) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = node.content.attributes.find(attribute);
    *value = found != node.content.attributes.end() ? found->second : CUkernelNodeAttrValue{};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  return WithNode(handle, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNode_st& node) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    AttributeList attributes = node.content.attributes;
    attributes[attribute] = *value;
    CUgraphNodeParams params = Describe(node.content);
    NodeContent content;
    const CUresult status = MakeContent(node.graph, &params, attributes, &content);
    if (status == CUDA_SUCCESS) node.content = std::move(content);
    return status;
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  AttributeList attributes;
  const CUresult found =
      WithNode(from, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNode_st& node) -> CUresult {
        attributes = node.content.attributes;
        return CUDA_SUCCESS;
      });
  if (found != CUDA_SUCCESS) return found;
  return WithNode(to, CU_GRAPH_NODE_TYPE_KERNEL, [&](CUgraphNode_st& node) -> CUresult {
    CUgraphNodeParams params = Describe(node.content);
    NodeContent content;
    const CUresult status = MakeContent(node.graph, &params, attributes, &content);
    if (status == CUDA_SUCCESS) node.content = std::move(content);
    return status;
  });
}

// ---- Copies and fills

CUresult cuGraphAddMemcpyNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                              size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_MEMCPY,
                  [&](CUgraphNodeParams& params) {
                    params.memcpy.copyCtx = context;
                    params.memcpy.copyParams = *copy;
                  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEMCPY, out,
             [](const CUgraphNodeParams& params) { return params.memcpy.copyParams; });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_MEMCPY,
                  [&](CUgraphNodeParams& params) { params.memcpy.copyParams = *copy; });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* fill,
                              CUcontext context) {
  if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_MEMSET,
                  [&](CUgraphNodeParams& params) {
                    params.memset = Resized<CUDA_MEMSET_NODE_PARAMS_v2>(*fill);
                    params.memset.ctx = context;
                  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEMSET, out, [](const CUgraphNodeParams& params) {
    return Resized<CUDA_MEMSET_NODE_PARAMS>(params.memset);
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* fill) {
  if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_MEMSET, [&](CUgraphNodeParams& params) {
    params.memset = Resized<CUDA_MEMSET_NODE_PARAMS_v2>(*fill);
  });
}

// ---- Host functions, child graphs, empty nodes

CUresult cuGraphAddHostNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                            size_t count, const CUDA_HOST_NODE_PARAMS* host) {
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_HOST,
                  [&](CUgraphNodeParams& params) {
                    params.host = {host->fn, host->userData};
                  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_HOST, out, [](const CUgraphNodeParams& params) {
    return CUDA_HOST_NODE_PARAMS{params.host.fn, params.host.userData};
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* host) {
  if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_HOST, [&](CUgraphNodeParams& params) {
    params.host = {host->fn, host->userData};
  });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                  size_t count, CUgraph child) {
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_GRAPH,
                  [&](CUgraphNodeParams& params) { params.graph.graph = child; });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_GRAPH, out,
             [](const CUgraphNodeParams& params) { return params.graph.graph; });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                             size_t count) {
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_EMPTY, [](CUgraphNodeParams&) {});
}

// ---- Events

CUresult cuGraphAddEventRecordNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                   size_t count, CUevent event) {
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                  [&](CUgraphNodeParams& params) { params.eventRecord.event = event; });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out,
             [](const CUgraphNodeParams& params) { return params.eventRecord.event; });
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return SetTyped(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                  [&](CUgraphNodeParams& params) { params.eventRecord.event = event; });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                 size_t count, CUevent event) {
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                  [&](CUgraphNodeParams& params) { params.eventWait.event = event; });
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out,
             [](const CUgraphNodeParams& params) { return params.eventWait.event; });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return SetTyped(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                  [&](CUgraphNodeParams& params) { params.eventWait.event = event; });
}

// ---- Memory

CUresult cuGraphAddMemAllocNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* alloc) {
  if (alloc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc = Resized<CUDA_MEM_ALLOC_NODE_PARAMS_v2>(*alloc);
  const CUresult status = AddGeneral(result, graph, nodes, nullptr, count, &params);
  if (status == CUDA_SUCCESS) alloc->dptr = params.alloc.dptr;
  return status;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, [](const CUgraphNodeParams& params) {
    return Resized<CUDA_MEM_ALLOC_NODE_PARAMS>(params.alloc);
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                               size_t count, CUdeviceptr address) {
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_MEM_FREE,
                  [&](CUgraphNodeParams& params) { params.free.dptr = address; });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out,
             [](const CUgraphNodeParams& params) { return params.free.dptr; });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* result, CUgraph graph, const CUgraphNode* nodes,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
  if (batch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddTyped(result, graph, nodes, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                  [&](CUgraphNodeParams& params) {
                    params.memOp = Resized<CUDA_BATCH_MEM_OP_NODE_PARAMS_v2>(*batch);
                  });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, out, [](const CUgraphNodeParams& params) {
    return Resized<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params.memOp);
  });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
  if (batch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetTyped(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [&](CUgraphNodeParams& params) {
    params.memOp = Resized<CUDA_BATCH_MEM_OP_NODE_PARAMS_v2>(*batch);
  });
}

// ---- What this device has not

CUresult cuGraphAddExternalSemaphoresSignalNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                                const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS*) {
  return RefuseSemaphores("cuGraphAddExternalSemaphoresSignalNode");
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                              const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) {
  return RefuseSemaphores("cuGraphAddExternalSemaphoresWaitNode");
}

}  // extern "C"
