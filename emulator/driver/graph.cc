// Graphs as data: nodes, edges, clones and the queries about them.
#include "emulator/driver/graph.h"

#include <algorithm>
#include <deque>
#include <set>

namespace ops_debug::emulator {

// Never destroyed: programs call the driver from atexit handlers.
GraphBook& TheGraphBook() {
  static GraphBook& book = *new GraphBook;
  return book;
}

CUgraphNode FindNode(CUgraphNode handle) {
  const auto& nodes = TheGraphBook().nodes;
  const auto found = nodes.find(handle);
  return found != nodes.end() ? found->second : nullptr;
}

CUgraph NewGraph() {
  auto graph = std::make_unique<CUgraph_st>();
  graph->id = TheGraphBook().next_id++;
  return TheGraphBook().graphs.Add(std::move(graph));
}

std::vector<GraphEdge> EdgesOf(const CUgraphNode* nodes, const CUgraphEdgeData* data,
                               size_t count) {
  std::vector<GraphEdge> edges(count);
  for (size_t i = 0; i < count; ++i) {
    edges[i].node = nodes[i];
    if (data != nullptr) edges[i].data = data[i];
  }
  return edges;
}

CUresult CheckEdges(CUgraph graph, const GraphEdge* edges, size_t count) {
  std::set<CUgraphNode> seen;
  for (size_t i = 0; i < count; ++i) {
    const CUgraphNode node = FindNode(edges[i].node);
    if (node == nullptr || node->graph != graph || !seen.insert(node).second)
      return CUDA_ERROR_INVALID_VALUE;
    const bool programmatic = edges[i].data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    if (edges[i].data.to_port != 0 || edges[i].data.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
        edges[i].data.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
        programmatic != (edges[i].data.from_port != 0) ||
        (programmatic && node->content.params.type != CU_GRAPH_NODE_TYPE_KERNEL)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void AddEdge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData& data) {
  to->dependencies.push_back({from, data});
  from->dependents.push_back({to, data});
}

CUresult AddNode(CUgraph graph, const GraphEdge* dependencies, size_t count, NodeContent content,
                 CUgraphNode* result) {
  const CUresult status = CheckEdges(graph, dependencies, count);
  if (status != CUDA_SUCCESS) return status;
  auto node = std::make_unique<CUgraphNode_st>();
  node->graph = graph;
  node->id = TheGraphBook().next_id++;
  node->content = std::move(content);
  for (CUgraph child : node->content.children) child->owner = node.get();
  for (size_t i = 0; i < count; ++i)
    AddEdge(dependencies[i].node, node.get(), dependencies[i].data);
  TheGraphBook().nodes[node.get()] = node.get();
  if (result != nullptr) *result = node.get();
  graph->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUgraph CloneGraph(CUgraph graph) {
  CUgraph clone = NewGraph();
  clone->original = graph;
  clone->conditions = graph->conditions;
  clone->user_objects = CopyReferences(*graph->user_objects);
  std::map<CUgraphNode, CUgraphNode> copies;
  for (const auto& node : graph->nodes) {
    CUgraphNode copy = nullptr;
    NodeContent content = node->content;
    content.children.clear();
    for (CUgraph child : node->content.children) content.children.push_back(CloneGraph(child));
    AddNode(clone, nullptr, 0, std::move(content), &copy);
    copy->original = node.get();
    copies[node.get()] = copy;
  }
  for (const auto& node : graph->nodes) {
    for (const GraphEdge& edge : node->dependencies)
      AddEdge(copies[edge.node], copies[node.get()], edge.data);
  }
  return clone;
}

namespace {

void RemoveEdge(CUgraphNode from, CUgraphNode to) {
  std::erase_if(to->dependencies, [&](const GraphEdge& edge) { return edge.node == from; });
  std::erase_if(from->dependents, [&](const GraphEdge& edge) { return edge.node == to; });
}

void ForgetNode(CUgraphNode node) {
  for (CUgraph child : node->content.children) DestroyGraph(child);
  TheGraphBook().nodes.erase(node);
}

}  // namespace

void DestroyGraph(CUgraph graph) {
  for (const auto& node : graph->nodes) ForgetNode(node.get());
  TheGraphBook().graphs.Remove(graph);
}

std::vector<CUgraphNode> SortNodes(const CUgraph_st& graph) {
  std::map<CUgraphNode, size_t> waits_for;
  std::vector<CUgraphNode> order;
  std::deque<CUgraphNode> ready;
  for (const auto& node : graph.nodes) {
    waits_for[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node.get());
  }
  while (!ready.empty()) {
    const CUgraphNode node = ready.front();
    ready.pop_front();
    order.push_back(node);
    for (const GraphEdge& edge : node->dependents) {
      if (--waits_for[edge.node] == 0) ready.push_back(edge.node);
    }
  }
  if (order.size() != graph.nodes.size()) order.clear();
  return order;
}

namespace {

// body(CUgraph_st&) for a live graph.
template <class Body>
CUresult WithGraph(CUgraph handle, Body body) {
  return OnDevice([&](Device&) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(handle);
    return graph != nullptr ? body(*graph) : CUDA_ERROR_INVALID_VALUE;
  });
}

template <class Body>
CUresult WithNode(CUgraphNode handle, Body body) {
  return OnDevice([&](Device&) -> CUresult {
    const CUgraphNode node = FindNode(handle);
    return node != nullptr ? body(*node) : CUDA_ERROR_INVALID_VALUE;
  });
}

// The protocol of list queries: without an array `*count` gives the length; with one, as many as
// fit are written, the rest of the array is cleared, and `*count` is what was written.
template <class T, class List>
CUresult GiveList(const List& list, T* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) {
    *count = list.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < list.size() ? list[i] : T{};
  *count = std::min(*count, list.size());
  return CUDA_SUCCESS;
}

bool IsDefault(const CUgraphEdgeData& data) { return data.type == 0 && data.from_port == 0; }

CUresult GiveEdges(const std::vector<GraphEdge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data,
                   size_t* count) {
  std::vector<CUgraphNode> ends;
  for (size_t i = 0; i < edges.size(); ++i) {
    ends.push_back(edges[i].node);
    // Data that the caller would lose is refused.
    if (data == nullptr && nodes != nullptr && !IsDefault(edges[i].data))
      return CUDA_ERROR_LOSSY_QUERY;
    if (data != nullptr && count != nullptr && i < *count) data[i] = edges[i].data;
  }
  return GiveList(ends, nodes, count);
}

struct FullEdge {
  CUgraphNode from, to;
  CUgraphEdgeData data;
};

std::vector<FullEdge> AllEdges(const CUgraph_st& graph) {
  std::vector<FullEdge> edges;
  for (const auto& node : graph.nodes) {
    for (const GraphEdge& edge : node->dependencies)
      edges.push_back({edge.node, node.get(), edge.data});
  }
  return edges;
}

CUresult GetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                  size_t* count) {
  return WithGraph(handle, [&](CUgraph_st& graph) -> CUresult {
    if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<FullEdge> edges = AllEdges(graph);
    std::vector<CUgraphNode> sources, targets;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (from != nullptr && data == nullptr && !IsDefault(edges[i].data))
        return CUDA_ERROR_LOSSY_QUERY;
      if (from != nullptr && data != nullptr && count != nullptr && i < *count)
        data[i] = edges[i].data;
      sources.push_back(edges[i].from);
      targets.push_back(edges[i].to);
    }
    size_t same = count != nullptr ? *count : 0;
    const CUresult status = GiveList(sources, from, count != nullptr ? &same : nullptr);
    if (status != CUDA_SUCCESS || from == nullptr) {
      if (count != nullptr) *count = same;
      return status;
    }
    return GiveList(targets, to, count);
  });
}

bool Reaches(CUgraphNode from, CUgraphNode to) {
  std::vector<CUgraphNode> open{from};
  std::set<CUgraphNode> seen;
  while (!open.empty()) {
    const CUgraphNode node = open.back();
    open.pop_back();
    if (node == to) return true;
    if (!seen.insert(node).second) continue;
    for (const GraphEdge& edge : node->dependents) open.push_back(edge.node);
  }
  return false;
}

CUresult AddDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                         const CUgraphEdgeData* data, size_t count) {
  return WithGraph(handle, [&](CUgraph_st& graph) -> CUresult {
    if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const GraphEdge edge{from[i], data != nullptr ? data[i] : CUgraphEdgeData{}};
      const CUgraphNode target = FindNode(to[i]);
      if (target == nullptr || target->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
      const CUresult status = CheckEdges(&graph, &edge, 1);
      if (status != CUDA_SUCCESS) return status;
      const bool known = std::any_of(target->dependencies.begin(), target->dependencies.end(),
                                     [&](const GraphEdge& e) { return e.node == from[i]; });
      if (known || Reaches(target, from[i])) return CUDA_ERROR_INVALID_VALUE;
      AddEdge(from[i], target, edge.data);
    }
    return CUDA_SUCCESS;
  });
}

CUresult RemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                            const CUgraphEdgeData* data, size_t count) {
  return WithGraph(handle, [&](CUgraph_st& graph) -> CUresult {
    if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const CUgraphNode source = FindNode(from[i]), target = FindNode(to[i]);
      if (source == nullptr || target == nullptr || source->graph != &graph ||
          target->graph != &graph) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      const auto edge = std::find_if(target->dependencies.begin(), target->dependencies.end(),
                                     [&](const GraphEdge& e) { return e.node == source; });
      if (edge == target->dependencies.end()) return CUDA_ERROR_INVALID_VALUE;
      const CUgraphEdgeData wanted = data != nullptr ? data[i] : CUgraphEdgeData{};
      if (edge->data.type != wanted.type || edge->data.from_port != wanted.from_port)
        return CUDA_ERROR_INVALID_VALUE;
      RemoveEdge(source, target);
    }
    return CUDA_SUCCESS;
  });
}

bool HasMemoryNodes(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->content.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
           node->content.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           std::any_of(node->content.children.begin(), node->content.children.end(),
                       [](CUgraph child) { return HasMemoryNodes(*child); });
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuGraphCreate(CUgraph* result, unsigned int flags) {
  return OnDevice([&](Device&) -> CUresult {
    if (result == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *result = NewGraph();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return WithGraph(handle, [](CUgraph_st& graph) -> CUresult {
    if (graph.owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
    DestroyGraph(&graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphClone(CUgraph* result, CUgraph handle) {
  return WithGraph(handle, [&](CUgraph_st& graph) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (HasMemoryNodes(graph) || !graph.conditions.empty()) return CUDA_ERROR_NOT_SUPPORTED;
    *result = CloneGraph(&graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* result, CUgraphNode handle, CUgraph clone) {
  return WithGraph(clone, [&](CUgraph_st& graph) -> CUresult {
    const CUgraphNode original = FindNode(handle);
    if (result == nullptr || original == nullptr || graph.original != original->graph)
      return CUDA_ERROR_INVALID_VALUE;
    for (const auto& node : graph.nodes) {
      if (node->original != original) continue;
      *result = node.get();
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return WithGraph(handle, [&](CUgraph_st& graph) {
    std::vector<CUgraphNode> list;
    for (const auto& node : graph.nodes) list.push_back(node.get());
    return GiveList(list, nodes, count);
  });
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return WithGraph(handle, [&](CUgraph_st& graph) {
    std::vector<CUgraphNode> list;
    for (const auto& node : graph.nodes) {
      if (node->dependencies.empty()) list.push_back(node.get());
    }
    return GiveList(list, nodes, count);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* data, size_t* count) {
  return GetEdges(handle, from, to, data, count);
}

CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return GetEdges(handle, from, to, nullptr, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes,
                                       CUgraphEdgeData* data, size_t* count) {
  return WithNode(handle, [&](CUgraphNode_st& node) {
    return GiveEdges(node.dependencies, nodes, data, count);
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependencies_v2(handle, nodes, nullptr, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes,
                                         CUgraphEdgeData* data, size_t* count) {
  return WithNode(
      handle, [&](CUgraphNode_st& node) { return GiveEdges(node.dependents, nodes, data, count); });
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(handle, nodes, nullptr, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  return AddDependencies(graph, from, to, data, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t count) {
  return AddDependencies(graph, from, to, nullptr, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
  return RemoveDependencies(graph, from, to, data, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
  return RemoveDependencies(graph, from, to, nullptr, count);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  return WithNode(handle, [](CUgraphNode_st& node) -> CUresult {
    const CUgraphNodeType type = node.content.params.type;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      return CUDA_ERROR_NOT_SUPPORTED;
    while (!node.dependencies.empty()) RemoveEdge(node.dependencies.back().node, &node);
    while (!node.dependents.empty()) RemoveEdge(&node, node.dependents.back().node);
    ForgetNode(&node);
    std::erase_if(node.graph->nodes, [&](const auto& owned) { return owned.get() == &node; });
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return WithNode(handle, [&](CUgraphNode_st& node) -> CUresult {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node.content.params.type;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
