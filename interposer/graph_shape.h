// Which kernels a graph runs, and which of them its edges order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "interposer/driver_table.h"

namespace ops_debug::interposer {

struct GraphKernel {
  CUgraphNode node = nullptr;
  // Kernels before it in the list with which no path of edges orders it, as runs [first, last].
  std::vector<std::pair<uint32_t, uint32_t>> beside;
  bool in_parallel = false;  // with others, before or behind it in the list
};

struct GraphShape {
  // All kernels, those of child graphs included, in an order that the edges allow.
  std::vector<GraphKernel> kernels;
  bool has_conditionals = false;  // their bodies are not in the list
  bool has_other_work = false;    // copies, memsets, host functions, events...
  bool too_large = false;         // then `kernels` is empty
};

// Asks the driver. Nothing may change the graph meanwhile.
GraphShape ShapeOf(CUgraph graph);

}  // namespace ops_debug::interposer
