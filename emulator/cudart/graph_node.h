// Adding a node of any kind: a function whose name differs between the two versions' ABIs.
#pragma once

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {

cudaError_t AddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                    const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* parameters);

}  // namespace ops_debug::emulator::cudart
