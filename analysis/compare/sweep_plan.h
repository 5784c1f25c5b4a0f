// How Compare cuts two tensors into chunks: blocks of the inner axes, which repeat row by row along
// the outer axes, and the bins that sums are kept in.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/compare/compare_chunk.h"
#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// The axes from `inner` on are the inner ones: together at least kLeastInner elements, unless the
// axis before them is so long that its channels have as many elements each; none if that is the
// last axis. A row is one combination of the outer axes, or equally one index of all the inner
// elements. Chunks of the same block lie above each other, row after row; what is summed per
// element over such a column of chunks is spread over bins afterwards. Short rows go `group` at a
// time, which lie in one channel of the axis before the inner ones.
constexpr int64_t kLeastInner = 256;

struct SweepPlan {
  std::vector<int64_t> shape;  // rank 1 at least
  int64_t count = 0;
  size_t inner = 0;
  int64_t inner_count = 1;  // elements of a row
  int64_t rows = 1;
  int64_t group = 1;
  int64_t block_width = 1, blocks = 1;  // of a row; group > 1: one block, which is the group

  std::vector<int64_t> channel_bins;  // slices per channel, by axis
  std::vector<int64_t> grid_bins;     // slices per bin of the grid, by axis
  std::vector<int64_t> grid_sizes;    // bins of the grid, by axis
  int64_t heat_width = 1;             // of the folded matrix
  HeatMap heat;                       // without cells

  // Rows of the folded matrix in one row; 0: a row is one element of the folded matrix's row.
  int64_t heat_rows_per_row() const { return inner_count / heat_width; }
  // Whether a row lies in two rows of tiles of the heat map.
  bool IsSplitByHeat(int64_t row) const;
  // The first row behind `row` that may lie in another bin of the grid or tile of the heat map.
  int64_t SegmentEnd(int64_t row) const;
};

// `shape` has no dimension of 0.
SweepPlan PlanSweep(const std::vector<int64_t>& shape, const CompareOptions& options);

}  // namespace ops_debug::analysis
