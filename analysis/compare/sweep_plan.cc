// Bins are made first, then the chunks, so that none crosses a bin of an outer axis.
#include "analysis/compare/sweep_plan.h"

#include <algorithm>
#include <string>

namespace ops_debug::analysis {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t WholeChunks(int64_t bin) { return bin <= kChunk ? bin : CeilDivide(bin, kChunk) * kChunk; }

void PlanInner(SweepPlan* plan) {
  size_t inner = plan->shape.size();
  while (inner > 0 && plan->channel_bins[inner - 1] * plan->inner_count < kLeastInner) {
    plan->inner_count *= plan->shape[--inner];
  }
  plan->inner = inner;
  plan->rows = plan->count / plan->inner_count;
  if (inner > 0 && plan->inner_count < kLeastInner) plan->group = kChunk / plan->inner_count;
  plan->blocks = CeilDivide(plan->inner_count, kChunk);
  plan->block_width = plan->inner_count * plan->group;
  if (plan->blocks > 1)
    plan->block_width = CeilDivide(CeilDivide(plan->inner_count, plan->blocks), 16) * 16;
}

// The largest axis is halved until the grid is small enough.
void PlanGrid(SweepPlan* plan) {
  std::vector<int64_t> sizes = plan->shape;
  const auto cells = [&] {
    // Stops early: a product of large shapes does not fit.
    int64_t product = 1;
    for (const int64_t size : sizes) {
      product *= size;
      if (product > kMostGridCells) break;
    }
    return product;
  };
  while (cells() > kMostGridCells) {
    int64_t& largest = *std::max_element(sizes.begin(), sizes.end());
    largest = CeilDivide(largest, 2);
  }
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t bin = CeilDivide(plan->shape[axis], sizes[axis]);
    if (axis + 1 == plan->inner)
      bin = CeilDivide(bin, plan->channel_bins[axis]) * plan->channel_bins[axis];
    plan->grid_bins.push_back(bin);
    plan->grid_sizes.push_back(CeilDivide(plan->shape[axis], bin));
  }
}

void PlanHeat(const CompareOptions& options, SweepPlan* plan) {
  size_t last = plan->shape.size() - 1;
  while (last > 0 && plan->shape[last] == 1) --last;
  plan->heat_width = plan->shape[last];
  const int64_t rows = plan->count / plan->heat_width;
  const int64_t tile_rows = CeilDivide(rows, std::max<int64_t>(options.heat_rows, 1));
  int64_t tile_columns = CeilDivide(plan->heat_width, std::max<int64_t>(options.heat_columns, 1));
  if (plan->inner_count == 1) {
    tile_columns = CeilDivide(tile_columns, plan->channel_bins[last]) * plan->channel_bins[last];
  }
  HeatMap& heat = plan->heat;
  heat.tile_rows = static_cast<uint64_t>(tile_rows);
  heat.tile_columns = static_cast<uint64_t>(tile_columns);
  heat.rows = static_cast<uint32_t>(CeilDivide(rows, tile_rows));
  heat.columns = static_cast<uint32_t>(CeilDivide(plan->heat_width, tile_columns));
  heat.folded_shape = {rows, plan->heat_width};
  std::string folded;
  for (size_t axis = 0; axis < last; ++axis)
    folded += (folded.empty() ? "" : ",") + std::to_string(axis);
  heat.axes = folded.empty() ? "one row" : last == 1 ? "dim " : "dims ";
  heat.axes += folded;
  heat.axes += " x dim ";
  heat.axes += std::to_string(last);
}

}  // namespace

bool SweepPlan::IsSplitByHeat(int64_t row) const {
  const int64_t first = row * heat_rows_per_row();
  const int64_t last = std::max(first, first + heat_rows_per_row() - 1);
  const auto tile = static_cast<int64_t>(heat.tile_rows);
  return first / tile != last / tile;
}

int64_t SweepPlan::SegmentEnd(int64_t row) const {
  if (inner == 0) return rows;
  const size_t axis = inner - 1;
  const int64_t index = row % shape[axis];
  const auto next = [](int64_t at, int64_t step) { return (at / step + 1) * step; };
  int64_t end = std::min(shape[axis], next(index, grid_bins[axis]));
  if (group > 1) end = std::min(end, next(index, channel_bins[axis]));
  const int64_t per_row = heat_rows_per_row();
  if (per_row == 0)
    return row - index + std::min(end, next(index, static_cast<int64_t>(heat.tile_columns)));
  if (IsSplitByHeat(row)) return row + 1;
  return std::min(row - index + end,
                  next(row * per_row, static_cast<int64_t>(heat.tile_rows)) / per_row);
}

SweepPlan PlanSweep(const std::vector<int64_t>& shape, const CompareOptions& options) {
  SweepPlan plan;
  plan.shape = shape.empty() ? std::vector<int64_t>{1} : shape;
  plan.count = 1;
  for (const int64_t size : plan.shape) plan.count *= size;
  for (size_t axis = 0; axis < plan.shape.size(); ++axis) {
    const int64_t bin = CeilDivide(plan.shape[axis], kMostChannels);
    plan.channel_bins.push_back(axis + 1 == plan.shape.size() ? WholeChunks(bin) : bin);
  }
  PlanInner(&plan);
  PlanGrid(&plan);
  PlanHeat(options, &plan);
  return plan;
}

}  // namespace ops_debug::analysis
