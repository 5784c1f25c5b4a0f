// Bins of the last axis are widened to whole chunks where they hold more than one.
#include "analysis/compare/sweep_plan.h"

#include <algorithm>
#include <string>

namespace ops_debug::analysis {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t WholeChunks(int64_t bin) { return bin <= kChunk ? bin : CeilDivide(bin, kChunk) * kChunk; }

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
    if (axis + 1 == sizes.size()) bin = WholeChunks(bin);
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
  const int64_t tile_columns =
      WholeChunks(CeilDivide(plan->heat_width, std::max<int64_t>(options.heat_columns, 1)));
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

void PlanUnits(SweepPlan* plan) {
  plan->split = plan->shape.size() - 1;
  while (plan->split > 0 && plan->behind * plan->shape[plan->split] * 2 <= kUnit) {
    plan->behind *= plan->shape[plan->split];
    --plan->split;
  }
  const int64_t size = plan->shape[plan->split];
  plan->unit_steps = std::clamp<int64_t>(kUnit / plan->behind, 1, size);
  plan->blocks = CeilDivide(size, plan->unit_steps);
  plan->outer = plan->count / (size * plan->behind);
  const size_t last = plan->shape.size() - 1;
  const bool whole_chunks = plan->channel_bins[last] % kChunk == 0 &&
                            plan->grid_bins[last] % kChunk == 0 &&
                            plan->heat.tile_columns % uint64_t{kChunk} == 0;
  plan->per_element = !(plan->split == last && whole_chunks);
}

}  // namespace

int64_t SweepPlan::UnitLength(int64_t block) const {
  return std::min(unit_steps, shape[split] - block * unit_steps) * behind;
}

int64_t SweepPlan::UnitBegin(int64_t outer_index, int64_t block) const {
  return (outer_index * shape[split] + block * unit_steps) * behind;
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
  PlanGrid(&plan);
  PlanHeat(options, &plan);
  PlanUnits(&plan);
  return plan;
}

}  // namespace ops_debug::analysis
