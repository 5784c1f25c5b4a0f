// Graphs and stream capture: the driver's, under the run-time's names. What nodes do is in
// graph_node.cc.
#include "emulator/cudart/forward.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
static_assert(offsetof(cudaGraphInstantiateParams, result_out) ==
              offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out));
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(int(cudaGraphNodeTypeConditional) == int(CU_GRAPH_NODE_TYPE_CONDITIONAL));
static_assert(int(cudaGraphExecUpdateErrorAttributesChanged) ==
              int(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED));

extern "C" {

// ---- Capture

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Forward<&DriverCalls::cuStreamBeginCapture>(stream, mode);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* nodes,
                                          const cudaGraphEdgeData* data, size_t count,
                                          cudaStreamCaptureMode mode) {
  return Forward<&DriverCalls::cuStreamBeginCaptureToGraph>(stream, graph, nodes, data, count,
                                                            mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Forward<&DriverCalls::cuStreamEndCapture>(stream, graph);
}

// ---- Topology

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return Forward<&DriverCalls::cuGraphCreate>(graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Forward<&DriverCalls::cuGraphDestroy>(graph);
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  return Forward<&DriverCalls::cuGraphClone>(clone, graph);
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original,
                                     cudaGraph_t clone) {
  return Forward<&DriverCalls::cuGraphNodeFindInClone>(node, original, clone);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return Forward<&DriverCalls::cuGraphNodeGetType>(node, type);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Forward<&DriverCalls::cuGraphGetNodes>(graph, nodes, count);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Forward<&DriverCalls::cuGraphGetRootNodes>(graph, nodes, count);
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return Forward<&DriverCalls::cuGraphDestroyNode>(node);
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
  return Forward<&DriverCalls::cuGraphDebugDotPrint>(graph, path, flags);
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned int default_value, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) {
    CUgraphConditionalHandle created = 0;
    const CUresult status =
        driver.cuGraphConditionalHandleCreate(&created, graph, nullptr, default_value, flags);
    if (handle != nullptr) *handle = created;
    return status;
  });
}

// ---- Execution

// One message for all kinds of failure, as the run-time's documentation has it.
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {  // NOLINT(google-runtime-int)
  return Forward<&DriverCalls::cuGraphInstantiateWithFlags>(executable, graph, flags);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {  // NOLINT(google-runtime-int)
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return Forward<&DriverCalls::cuGraphInstantiateWithParams>(executable, graph, params);
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable,
                                  unsigned long long* flags) {  // NOLINT(google-runtime-int)
  return Forward<&DriverCalls::cuGraphExecGetFlags>(executable, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return Forward<&DriverCalls::cuGraphExecUpdate>(executable, graph, info);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Forward<&DriverCalls::cuGraphExecDestroy>(executable);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return Forward<&DriverCalls::cuGraphUpload>(executable, stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Forward<&DriverCalls::cuGraphLaunch>(executable, stream);
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                    unsigned int enabled) {
  return Forward<&DriverCalls::cuGraphNodeSetEnabled>(executable, node, enabled);
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node,
                                    unsigned int* enabled) {
  return Forward<&DriverCalls::cuGraphNodeGetEnabled>(executable, node, enabled);
}

// ---- Memory and user objects

cudaError_t cudaDeviceGraphMemTrim(int ordinal) {
  return Forward<&DriverCalls::cuDeviceGraphMemTrim>(ordinal);
}

cudaError_t cudaDeviceGetGraphMemAttribute(int ordinal, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return Forward<&DriverCalls::cuDeviceGetGraphMemAttribute>(ordinal, attribute, value);
}

cudaError_t cudaDeviceSetGraphMemAttribute(int ordinal, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return Forward<&DriverCalls::cuDeviceSetGraphMemAttribute>(ordinal, attribute, value);
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags) {
  return Forward<&DriverCalls::cuUserObjectCreate>(object, pointer, destroy, references, flags);
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return Forward<&DriverCalls::cuUserObjectRetain>(object, count);
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return Forward<&DriverCalls::cuUserObjectRelease>(object, count);
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags) {
  return Forward<&DriverCalls::cuGraphRetainUserObject>(graph, object, count, flags);
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                       unsigned int count) {
  return Forward<&DriverCalls::cuGraphReleaseUserObject>(graph, object, count);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaStreamBeginCapture, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaStreamBeginCaptureToGraph, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaStreamEndCapture, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaGraphInstantiateWithParams, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaGraphUpload, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaGraphLaunch, ptsz, 2)
