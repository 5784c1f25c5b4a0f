#include "analysis/compare/error_axes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ops_debug::analysis {
namespace {

constexpr double kLeastLift = 2;
constexpr double kLeastDeviations = 3.5;
constexpr size_t kMostRanked = 32;
// Logarithms of means that differ by less than this are taken as equal.
constexpr double kLeastSpread = 0.05;

double MassOf(const Channel& channel, Measure measure) {
  return measure == Measure::kFailed ? static_cast<double>(channel.failed) : channel.squared_error;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Rank(Axis& axis, Measure measure) {
  axis.ranked.clear();
  if (axis.channels.size() < 3) return;
  double mass = 0, elements = 0, largest = 0;
  for (const Channel& channel : axis.channels) {
    mass += MassOf(channel, measure);
    elements += static_cast<double>(channel.count);
    if (channel.count > 0) {
      largest = std::max(largest, MassOf(channel, measure) / static_cast<double>(channel.count));
    }
  }
  if (!(mass > 0) || !std::isfinite(mass)) return;
  // Far below the largest all is the same silence; without a floor, zeros have no logarithm.
  const double floor = largest * 1e-12;
  std::vector<double> logs;
  for (const Channel& channel : axis.channels) {
    const double mean =
        channel.count > 0 ? MassOf(channel, measure) / static_cast<double>(channel.count) : 0;
    logs.push_back(std::log(std::max(mean, floor)));
  }
  const double median = Median(logs);
  std::vector<double> deviations;
  for (const double value : logs) deviations.push_back(std::abs(value - median));
  const double spread = std::max(1.4826 * Median(deviations), kLeastSpread);
  for (uint32_t i = 0; i < axis.channels.size(); ++i) {
    const Channel& channel = axis.channels[i];
    const double share = MassOf(channel, measure) / mass;
    const double fair = static_cast<double>(channel.count) / elements;
    if (share >= kLeastLift * fair && (logs[i] - median) / spread >= kLeastDeviations) {
      axis.ranked.push_back(i);
    }
  }
  std::stable_sort(axis.ranked.begin(), axis.ranked.end(), [&](uint32_t a, uint32_t b) {
    return MassOf(axis.channels[a], measure) > MassOf(axis.channels[b], measure);
  });
  if (axis.ranked.size() > kMostRanked) axis.ranked.resize(kMostRanked);
}

// Mass and elements of cells.
struct Cells {
  std::vector<double> mass, elements;
};

// The grid with all axes but `kept` down to a few bins: means over more elements vary less by
// chance, so that what is left within a slice is the other axes' doing.
Cells Coarsen(const Cells& cells, const std::vector<int64_t>& bins, size_t kept) {
  const auto axes = std::count_if(bins.begin(), bins.end(), [](int64_t b) { return b > 1; });
  const int64_t most = axes > 2 ? 4 : 8;
  std::vector<int64_t> coarse = bins;
  size_t count = 1;
  for (size_t axis = 0; axis < bins.size(); ++axis) {
    if (axis != kept) coarse[axis] = std::min(bins[axis], most);
    count *= static_cast<size_t>(coarse[axis]);
  }
  Cells sums{std::vector<double>(count), std::vector<double>(count)};
  for (size_t cell = 0; cell < cells.mass.size(); ++cell) {
    auto rest = static_cast<int64_t>(cell);
    int64_t target = 0, stride = 1;
    // The kept axis innermost: its slices are then the target modulo its bins.
    int64_t of_kept = 0;
    for (size_t axis = bins.size(); axis-- > 0;) {
      const int64_t bin = rest % bins[axis];
      rest /= bins[axis];
      if (axis == kept) {
        of_kept = bin;
        continue;
      }
      target += bin * coarse[axis] / bins[axis] * stride;
      stride *= coarse[axis];
    }
    const auto to = static_cast<size_t>(target * bins[kept] + of_kept);
    sums.mass[to] += cells.mass[cell];
    sums.elements[to] += cells.elements[cell];
  }
  return sums;
}

// 1 - (within / its degrees of freedom) / (total / its degrees of freedom).
double Explained(const Cells& fine, const std::vector<int64_t>& bins, size_t axis) {
  const Cells cells = Coarsen(fine, bins, axis);
  const auto groups = static_cast<size_t>(bins[axis]);
  std::vector<double> mass(groups), elements(groups);
  double all_mass = 0, all_elements = 0, used = 0;
  for (size_t cell = 0; cell < cells.mass.size(); ++cell) {
    mass[cell % groups] += cells.mass[cell];
    elements[cell % groups] += cells.elements[cell];
    all_mass += cells.mass[cell];
    all_elements += cells.elements[cell];
    used += cells.elements[cell] > 0 ? 1 : 0;
  }
  if (!(all_elements > 0)) return 0;
  const double mean = all_mass / all_elements;
  double total = 0, within = 0;
  for (size_t cell = 0; cell < cells.mass.size(); ++cell) {
    if (!(cells.elements[cell] > 0)) continue;
    const double of_cell = cells.mass[cell] / cells.elements[cell];
    const double of_slice = mass[cell % groups] / elements[cell % groups];
    total += cells.elements[cell] * (of_cell - mean) * (of_cell - mean);
    within += cells.elements[cell] * (of_cell - of_slice) * (of_cell - of_slice);
  }
  // Rounding leaves a trace of variation where there is none.
  if (!(total > 1e-24 * all_elements * mean * mean)) return 0;
  const auto slices = static_cast<double>(groups);
  if (used <= slices) return 1;
  return std::clamp(1 - within / (used - slices) / (total / (used - 1)), 0.0, 1.0);
}

}  // namespace

int64_t NotFiniteOnOneSide(const WholeStatistics& whole) {
  return whole.nan_candidate + whole.nan_reference - 2 * whole.nan_both + whole.inf_candidate +
         whole.inf_reference - 2 * whole.inf_both;
}

Measure MeasureOf(const WholeStatistics& whole) {
  return 2 * NotFiniteOnOneSide(whole) > whole.failed || !(whole.l2 > 0) || !std::isfinite(whole.l2)
             ? Measure::kFailed
             : Measure::kSquaredError;
}

std::vector<int64_t> CellCounts(const ErrorGrid& grid, const std::vector<int64_t>& shape) {
  std::vector<int64_t> counts(grid.squared_error.size(), 1);
  size_t inner = counts.size();
  for (size_t axis = 0; axis < grid.bins.size(); ++axis) {
    const auto bins = static_cast<size_t>(grid.bins[axis]);
    inner /= bins;
    for (size_t cell = 0; cell < counts.size(); ++cell) {
      const auto bin = static_cast<int64_t>(cell / inner % bins);
      const int64_t begin = bin * grid.bin_sizes[axis];
      counts[cell] *= std::clamp<int64_t>(shape[axis] - begin, 0, grid.bin_sizes[axis]);
    }
  }
  return counts;
}

void RankChannels(Comparison* comparison) {
  const Measure measure = MeasureOf(comparison->whole);
  for (Axis& axis : comparison->axes) Rank(axis, measure);
  const ErrorGrid& grid = comparison->grid;
  if (grid.squared_error.empty() || grid.bins.size() != comparison->shape.size()) return;
  const std::vector<int64_t> counts = CellCounts(grid, comparison->shape);
  Cells cells;
  for (size_t i = 0; i < counts.size(); ++i) {
    cells.elements.push_back(static_cast<double>(counts[i]));
    cells.mass.push_back(measure == Measure::kFailed ? static_cast<double>(grid.failed[i])
                                                     : grid.squared_error[i]);
  }
  // Squares of squares must stay finite.
  const double largest = *std::max_element(cells.mass.begin(), cells.mass.end());
  if (!(largest > 0) || !std::isfinite(largest)) return;
  for (double& mass : cells.mass) mass /= largest;
  for (Axis& axis : comparison->axes) {
    if (axis.axis < grid.bins.size() && axis.size > 1) {
      axis.explained = Explained(cells, grid.bins, axis.axis);
    }
  }
}

}  // namespace ops_debug::analysis
