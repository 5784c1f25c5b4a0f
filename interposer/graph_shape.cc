// Child graphs are laid out flat: one vertex in front of everything in them and one behind. Order
// is reachability, kept as a set of kernels per vertex, since a graph is laid out once and launched
// often. The list follows one branch as far as it goes, so that a branch is one run for its
// neighbours.
#include "interposer/graph_shape.h"

#include <algorithm>
#include <unordered_map>

namespace ops_debug::interposer {
namespace {

constexpr int kDeepest = 16;
constexpr size_t kLargestSetsBytes = size_t{64} << 20;
constexpr uint32_t kNone = UINT32_MAX;

struct Vertex {
  CUgraphNode kernel = nullptr;  // or null
  std::vector<uint32_t> after;   // vertices
};

class Layout {
 public:
  explicit Layout(GraphShape* shape) : shape_(*shape) {}

  // Everything in `graph` comes after `begin`. Answers a vertex behind all of it.
  uint32_t Add(CUgraph graph, uint32_t begin, int depth) {
    std::unordered_map<CUgraphNode, std::pair<uint32_t, uint32_t>> ends;
    std::vector<uint32_t> last;
    for (const CUgraphNode node : NodesOf(graph)) {
      const uint32_t first = NewVertex(begin);
      uint32_t behind = first;
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      OPS_DEBUG_REAL(cuGraphNodeGetType)(node, &type);
      CUgraph child = nullptr;
      if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        vertices_[first].kernel = node;
      } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < kDeepest &&
                 OPS_DEBUG_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) {
        behind = Add(child, first, depth + 1);
      } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        shape_.has_conditionals = true;
      } else if (type != CU_GRAPH_NODE_TYPE_EMPTY) {
        shape_.has_other_work = true;
      }
      ends[node] = {first, behind};
      last.push_back(behind);
    }
    AddEdges(graph, ends);
    const uint32_t end = NewVertex(begin);
    vertices_[end].after.insert(vertices_[end].after.end(), last.begin(), last.end());
    return end;
  }

  std::vector<uint32_t> Sorted() const;
  const std::vector<Vertex>& vertices() const { return vertices_; }

 private:
  static std::vector<CUgraphNode> NodesOf(CUgraph graph) {
    size_t count = 0;
    if (OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS) return {};
    std::vector<CUgraphNode> nodes(count);
    if (count == 0 || OPS_DEBUG_REAL(cuGraphGetNodes)(graph, nodes.data(), &count) != CUDA_SUCCESS)
      return {};
    return nodes;
  }

  template <class Ends>
  void AddEdges(CUgraph graph, const Ends& ends) {
    std::vector<CUgraphNode> from, to;
    std::vector<CUgraphEdgeData> data;
    size_t count = 0;
    // Before CUDA 12.3 edges have no data.
    auto with_data = OPS_DEBUG_REAL(cuGraphGetEdges_v2);
    auto without = OPS_DEBUG_REAL(cuGraphGetEdges);
    const CUresult counted = with_data ? with_data(graph, nullptr, nullptr, nullptr, &count)
                                       : without(graph, nullptr, nullptr, &count);
    if (counted != CUDA_SUCCESS || count == 0) return;
    from.resize(count);
    to.resize(count);
    data.resize(count);
    const CUresult got = with_data ? with_data(graph, from.data(), to.data(), data.data(), &count)
                                   : without(graph, from.data(), to.data(), &count);
    if (got != CUDA_SUCCESS) return;
    for (size_t i = 0; i < std::min(count, from.size()); i++) {
      const auto before = ends.find(from[i]), behind = ends.find(to[i]);
      if (before == ends.end() || behind == ends.end()) continue;
      vertices_[behind->second.first].after.push_back(before->second.second);
    }
  }

  uint32_t NewVertex(uint32_t begin) {
    vertices_.emplace_back();
    if (begin != kNone) vertices_.back().after.push_back(begin);
    return static_cast<uint32_t>(vertices_.size() - 1);
  }

  GraphShape& shape_;
  std::vector<Vertex> vertices_;
};

std::vector<uint32_t> Layout::Sorted() const {
  std::vector<std::vector<uint32_t>> next(vertices_.size());
  std::vector<size_t> missing(vertices_.size());
  std::vector<uint32_t> ready, order;
  for (uint32_t i = 0; i < vertices_.size(); i++) {
    missing[i] = vertices_[i].after.size();
    for (const uint32_t before : vertices_[i].after) next[before].push_back(i);
  }
  for (auto i = static_cast<uint32_t>(vertices_.size()); i-- > 0;) {
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const uint32_t vertex = ready.back();
    ready.pop_back();
    order.push_back(vertex);
    for (size_t i = next[vertex].size(); i-- > 0;) {
      if (--missing[next[vertex][i]] == 0) ready.push_back(next[vertex][i]);
    }
  }
  return order;
}

// Kernels, by number in the list, that come before each vertex.
class EarlierKernels {
 public:
  EarlierKernels(size_t vertices, size_t kernels)
      : words_((kernels + 63) / 64), sets_(vertices * words_) {}

  void Add(uint32_t vertex, uint32_t before, uint32_t kernel_of_before) {
    for (size_t i = 0; i < words_; i++) sets_[vertex * words_ + i] |= sets_[before * words_ + i];
    if (kernel_of_before != kNone)
      sets_[vertex * words_ + kernel_of_before / 64] |= 1ull << kernel_of_before % 64;
  }
  bool Holds(uint32_t vertex, uint32_t kernel) const {
    return (sets_[vertex * words_ + kernel / 64] >> kernel % 64 & 1) != 0;
  }

 private:
  const size_t words_;
  std::vector<uint64_t> sets_;
};

void FindParallel(const std::vector<Vertex>& vertices, const std::vector<uint32_t>& order,
                  GraphShape* shape) {
  size_t count = 0;
  bool chain = true;
  for (size_t i = 0; i < order.size(); i++) {
    const Vertex& vertex = vertices[order[i]];
    count += vertex.kernel ? 1 : 0;
    chain =
        chain && (i == 0 || std::ranges::find(vertex.after, order[i - 1]) != vertex.after.end());
  }
  if (!chain && vertices.size() * ((count + 63) / 64) * 8 > kLargestSetsBytes) {
    shape->too_large = true;
    return;
  }
  EarlierKernels earlier(chain ? 0 : vertices.size(), count);
  std::vector<uint32_t> kernel_of(vertices.size(), kNone);
  for (const uint32_t at : order) {
    const Vertex& vertex = vertices[at];
    if (!chain) {
      for (const uint32_t before : vertex.after) earlier.Add(at, before, kernel_of[before]);
    }
    if (!vertex.kernel) continue;
    const auto number = static_cast<uint32_t>(shape->kernels.size());
    kernel_of[at] = number;
    GraphKernel& kernel = shape->kernels.emplace_back();
    kernel.node = vertex.kernel;
    for (uint32_t other = 0; !chain && other < number; other++) {
      if (earlier.Holds(at, other)) continue;
      shape->kernels[other].in_parallel = kernel.in_parallel = true;
      if (!kernel.beside.empty() && kernel.beside.back().second + 1 == other) {
        kernel.beside.back().second = other;
      } else {
        kernel.beside.emplace_back(other, other);
      }
    }
  }
}

}  // namespace

GraphShape ShapeOf(CUgraph graph) {
  GraphShape shape;
  Layout layout(&shape);
  layout.Add(graph, kNone, 0);
  FindParallel(layout.vertices(), layout.Sorted(), &shape);
  return shape;
}

}  // namespace ops_debug::interposer
