// How Compare cuts two tensors into pieces: units of consecutive elements, which repeat along the
// outer axes, and the bins that sums are kept in.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/compare/compare_chunk.h"
#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// A unit is `unit_steps` indices of axis `split` with everything behind it: at most kUnit elements.
// Units with the same indices of `split` lie above each other, one for each combination of outer
// axes; what is summed per element over such a column of units is spread over bins afterwards
// (per_element). Where all bins of the last axis are made of whole chunks the sums of chunks
// suffice.
constexpr int64_t kUnit = 8 * kChunk;

struct SweepPlan {
  std::vector<int64_t> shape;  // rank 1 at least
  int64_t count = 0;
  size_t split = 0;
  int64_t behind = 1;  // elements of one index of axis `split`
  int64_t unit_steps = 1;
  int64_t blocks = 1;  // units along axis `split`
  int64_t outer = 1;   // combinations of axes before `split`
  bool per_element = true;

  std::vector<int64_t> channel_bins;  // slices per channel, by axis
  std::vector<int64_t> grid_bins;     // slices per bin of the grid, by axis
  std::vector<int64_t> grid_sizes;    // bins of the grid, by axis
  int64_t heat_width = 1;             // of the folded matrix
  HeatMap heat;                       // without cells

  int64_t UnitLength(int64_t block) const;
  int64_t UnitBegin(int64_t outer_index, int64_t block) const;
};

// `shape` has no dimension of 0.
SweepPlan PlanSweep(const std::vector<int64_t>& shape, const CompareOptions& options);

}  // namespace ops_debug::analysis
