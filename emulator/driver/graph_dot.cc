// cuGraphDebugDotPrint: a graph in the language of Graphviz, one box per node.
#include <fstream>
#include <sstream>

#include "emulator/driver/graph.h"

namespace ops_debug::emulator {
namespace {

const char* TypeName(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "UNKNOWN";
  }
}

// What a box says beside the type; names hold no characters that need escapes.
void WriteDetails(std::ostream& out, const NodeContent& content) {
  const CUgraphNodeParams& params = content.params;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto& kernel = std::get<KernelOperation>(content.operations.front().work);
      const bool is_loaded = TheDriver().functions.Find(kernel.function) != nullptr;
      out << "\\n"
          << (is_loaded ? kernel.function->name : "(unloaded)") << "\\n<<<(" << kernel.grid.x << ","
          << kernel.grid.y << "," << kernel.grid.z << "),(" << kernel.block.x << ","
          << kernel.block.y << "," << kernel.block.z << ")," << kernel.dynamic_shared_bytes
          << ">>>";
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
      out << "\\n" << copy.WidthInBytes << " x " << copy.Height << " x " << copy.Depth << " bytes";
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      out << "\\n"
          << params.memset.width << " x " << params.memset.height << " elements of "
          << params.memset.elementSize << " bytes = " << params.memset.value;
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      out << "\\n" << params.alloc.bytesize << " bytes";
      break;
    default:
      break;
  }
}

void WriteGraph(std::ostream& out, const CUgraph_st& graph, const std::string& indent) {
  for (const auto& node : graph.nodes) {
    out << indent << "\"node_" << node->id << "\" [label=\"" << node->id << "\\n"
        << TypeName(node->content.params.type);
    WriteDetails(out, node->content);
    out << "\"];\n";
    for (const GraphEdge& edge : node->dependencies) {
      out << indent << "\"node_" << edge.node->id << "\" -> \"node_" << node->id << "\";\n";
    }
    for (CUgraph child : node->content.children) {
      out << indent << "subgraph \"cluster_" << child->id << "\" {\n"
          << indent << "  label=\"graph_" << child->id << " of node " << node->id << "\";\n";
      WriteGraph(out, *child, indent + "  ");
      out << indent << "}\n";
    }
  }
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) {
  return OnDevice([&](Device&) -> CUresult {
    const CUgraph_st* graph = TheGraphBook().graphs.Find(handle);
    if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ostringstream text;
    text << "digraph \"graph_" << graph->id << "\" {\n  node [shape=box];\n";
    WriteGraph(text, *graph, "  ");
    text << "}\n";
    std::ofstream file(path);
    file << text.str();
    file.close();
    return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}
