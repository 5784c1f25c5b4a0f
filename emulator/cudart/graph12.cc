// The same functions with the ABI of CUDA 12: without edge data under the plain name, with it as
// _v2. The toolkit's header declares CUDA 13's, so these carry their exported names as assembler
// labels.
#include "emulator/cudart/forward.h"
#include "emulator/cudart/graph_node.h"

#define OPS_DEBUG_EXPORTED_AS(name) __asm__(#name)

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t GraphAddNode12(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t,
                           cudaGraphNodeParams*) OPS_DEBUG_EXPORTED_AS(cudaGraphAddNode);
cudaError_t GraphAddNode12v2(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                             const cudaGraphEdgeData*, size_t, cudaGraphNodeParams*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphAddNode_v2);
cudaError_t GraphGetEdges12(cudaGraph_t, cudaGraphNode_t*, cudaGraphNode_t*, size_t*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphGetEdges);
cudaError_t GraphGetEdges12v2(cudaGraph_t, cudaGraphNode_t*, cudaGraphNode_t*, cudaGraphEdgeData*,
                              size_t*) OPS_DEBUG_EXPORTED_AS(cudaGraphGetEdges_v2);
cudaError_t GraphNodeGetDependencies12(cudaGraphNode_t, cudaGraphNode_t*, size_t*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphNodeGetDependencies);
cudaError_t GraphNodeGetDependencies12v2(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                         size_t*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphNodeGetDependencies_v2);
cudaError_t GraphNodeGetDependentNodes12(cudaGraphNode_t, cudaGraphNode_t*, size_t*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphNodeGetDependentNodes);
cudaError_t GraphNodeGetDependentNodes12v2(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                           size_t*)
    OPS_DEBUG_EXPORTED_AS(cudaGraphNodeGetDependentNodes_v2);
cudaError_t GraphAddDependencies12(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                   size_t) OPS_DEBUG_EXPORTED_AS(cudaGraphAddDependencies);
cudaError_t GraphAddDependencies12v2(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                     const cudaGraphEdgeData*, size_t)
    OPS_DEBUG_EXPORTED_AS(cudaGraphAddDependencies_v2);
cudaError_t GraphRemoveDependencies12(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                      size_t) OPS_DEBUG_EXPORTED_AS(cudaGraphRemoveDependencies);
cudaError_t GraphRemoveDependencies12v2(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                        const cudaGraphEdgeData*, size_t)
    OPS_DEBUG_EXPORTED_AS(cudaGraphRemoveDependencies_v2);
cudaError_t UpdateCapture12(cudaStream_t, cudaGraphNode_t*, size_t, unsigned int)
    OPS_DEBUG_EXPORTED_AS(cudaStreamUpdateCaptureDependencies);
cudaError_t UpdateCapture12v2(cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                              unsigned int)
    OPS_DEBUG_EXPORTED_AS(cudaStreamUpdateCaptureDependencies_v2);

cudaError_t GraphAddNode12(cudaGraphNode_t* node, cudaGraph_t graph,
                           const cudaGraphNode_t* dependencies, size_t count,
                           cudaGraphNodeParams* parameters) {
  return AddNode(node, graph, dependencies, nullptr, count, parameters);
}

cudaError_t GraphAddNode12v2(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* data,
                             size_t count, cudaGraphNodeParams* parameters) {
  return AddNode(node, graph, dependencies, data, count, parameters);
}

cudaError_t GraphGetEdges12(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                            size_t* count) {
  return GraphGetEdges12v2(graph, from, to, nullptr, count);
}

cudaError_t GraphGetEdges12v2(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphGetEdges>(graph, from, to, data, count);
}

cudaError_t GraphNodeGetDependencies12(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                       size_t* count) {
  return GraphNodeGetDependencies12v2(node, nodes, nullptr, count);
}

cudaError_t GraphNodeGetDependencies12v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphNodeGetDependencies>(node, nodes, data, count);
}

cudaError_t GraphNodeGetDependentNodes12(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         size_t* count) {
  return GraphNodeGetDependentNodes12v2(node, nodes, nullptr, count);
}

cudaError_t GraphNodeGetDependentNodes12v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                           cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphNodeGetDependentNodes>(node, nodes, data, count);
}

cudaError_t GraphAddDependencies12(cudaGraph_t graph, const cudaGraphNode_t* from,
                                   const cudaGraphNode_t* to, size_t count) {
  return GraphAddDependencies12v2(graph, from, to, nullptr, count);
}

cudaError_t GraphAddDependencies12v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                     size_t count) {
  return Forward<&DriverCalls::cuGraphAddDependencies>(graph, from, to, data, count);
}

cudaError_t GraphRemoveDependencies12(cudaGraph_t graph, const cudaGraphNode_t* from,
                                      const cudaGraphNode_t* to, size_t count) {
  return GraphRemoveDependencies12v2(graph, from, to, nullptr, count);
}

cudaError_t GraphRemoveDependencies12v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                        size_t count) {
  return Forward<&DriverCalls::cuGraphRemoveDependencies>(graph, from, to, data, count);
}

cudaError_t UpdateCapture12(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                            unsigned int flags) {
  return UpdateCapture12v2(stream, nodes, nullptr, count, flags);
}

cudaError_t UpdateCapture12v2(cudaStream_t stream, cudaGraphNode_t* nodes,
                              const cudaGraphEdgeData* data, size_t count, unsigned int flags) {
  return Forward<&DriverCalls::cuStreamUpdateCaptureDependencies>(stream, nodes, data, count,
                                                                  flags);
}

}  // extern "C"
