// Functions about graphs whose CUDA 13 ABI has edge data.
#include "emulator/cudart/forward.h"
#include "emulator/cudart/graph_node.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* data,
                             size_t count, cudaGraphNodeParams* parameters) {
  return AddNode(node, graph, dependencies, data, count, parameters);
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphGetEdges>(graph, from, to, data, count);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphNodeGetDependencies>(node, nodes, data, count);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                           cudaGraphEdgeData* data, size_t* count) {
  return Forward<&DriverCalls::cuGraphNodeGetDependentNodes>(node, nodes, data, count);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                     size_t count) {
  return Forward<&DriverCalls::cuGraphAddDependencies>(graph, from, to, data, count);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                                        size_t count) {
  return Forward<&DriverCalls::cuGraphRemoveDependencies>(graph, from, to, data, count);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData* data, size_t count,
                                                unsigned int flags) {
  return Forward<&DriverCalls::cuStreamUpdateCaptureDependencies>(stream, nodes, data, count,
                                                                  flags);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaStreamUpdateCaptureDependencies, ptsz, 5)
