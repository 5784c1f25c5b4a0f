// A Comparison gathered element by element, as simple as can be: what reads structure out of it is
// tested without the engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "analysis/compare/element_value.h"
#include "analysis/compare/error_sample.h"
#include "analysis/compare/error_structure.h"

namespace ops_debug::analysis {

inline proto::Tensor FloatTensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  auto bytes = std::make_shared<std::vector<float>>(values);
  proto::Tensor tensor;
  tensor.shape = std::move(shape);
  tensor.data = reinterpret_cast<const std::byte*>(bytes->data());
  tensor.owner = bytes;
  return tensor;
}

// `most_slices`: axes that are longer are binned, as those of more than kMostChannels are.
inline Comparison NaiveComparison(const proto::Tensor& candidate, const proto::Tensor& reference,
                                  Tolerance tolerance = {1.3e-6, 1e-5},
                                  int64_t most_slices = kMostChannels) {
  Comparison comparison;
  comparison.candidate_dtype = candidate.dtype;
  comparison.reference_dtype = reference.dtype;
  comparison.shape = reference.shape;
  comparison.verdict.used = tolerance;
  WholeStatistics& whole = comparison.whole;
  const size_t rank = reference.shape.size();
  ErrorGrid& grid = comparison.grid;
  size_t cells = 1;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t size = reference.shape[axis];
    const int64_t bin = std::max<int64_t>((size + most_slices - 1) / most_slices, 1);
    Axis entry{static_cast<uint32_t>(axis), size, bin, {}, {}, 0};
    for (int64_t i = 0; i < size; i += bin) {
      entry.channels.emplace_back();
      entry.channels.back().index = i;
    }
    comparison.axes.push_back(entry);
    const auto most =
        static_cast<int64_t>(std::pow(2.0, std::floor(16.0 / static_cast<double>(rank))));
    grid.bin_sizes.push_back(std::max<int64_t>((size + most - 1) / most, 1));
    grid.bins.push_back((size + grid.bin_sizes.back() - 1) / grid.bin_sizes.back());
    cells *= static_cast<size_t>(grid.bins.back());
  }
  grid.squared_error.assign(cells, 0);
  grid.failed.assign(cells, 0);
  const TensorPair pair(candidate, reference, tolerance);
  double sums[5] = {};  // reference, candidate, reference^2, reference*candidate, candidate^2
  whole.min_reference = whole.min_candidate = HUGE_VAL;
  whole.max_reference = whole.max_candidate = -HUGE_VAL;
  std::vector<int64_t> index;
  std::vector<Element> failing;
  whole.count = reference.ElementCount();
  for (int64_t position = 0; position < whole.count; ++position) {
    pair.reference().Unravel(position, &index);
    const double c = pair.Candidate(index).real(), r = pair.Reference(index).real();
    const double error = std::abs(c - r);
    const bool fails = pair.Fails(c, r), finite = std::isfinite(c) && std::isfinite(r);
    whole.failed += fails ? 1 : 0;
    whole.nan_candidate += std::isnan(c) ? 1 : 0;
    whole.nan_reference += std::isnan(r) ? 1 : 0;
    whole.nan_both += std::isnan(c) && std::isnan(r) ? 1 : 0;
    if (fails)
      failing.push_back({index, c, r, 0, 0, finite ? error : HUGE_VAL, error / std::abs(r), 0});
    size_t cell = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      Channel& channel =
          comparison.axes[axis]
              .channels[static_cast<size_t>(index[axis] / comparison.axes[axis].bin)];
      channel.count += 1;
      channel.failed += fails ? 1 : 0;
      channel.squared_error += finite ? error * error : 0;
      channel.squared_reference += std::isfinite(r) ? r * r : 0;
      channel.max_abs = std::max(channel.max_abs, finite ? error : HUGE_VAL);
      cell = cell * static_cast<size_t>(grid.bins[axis]) +
             static_cast<size_t>(index[axis] / grid.bin_sizes[axis]);
    }
    grid.failed[cell] += fails ? 1 : 0;
    if (!finite) continue;
    grid.squared_error[cell] += error * error;
    ++whole.finite;
    whole.equal += c == r ? 1 : 0;
    whole.l1 += error;
    whole.l2 += error * error;
    whole.max_abs = std::max(whole.max_abs, error);
    whole.max_rel = std::max(whole.max_rel, error / std::abs(r));
    whole.min_reference = std::min(whole.min_reference, r);
    whole.max_reference = std::max(whole.max_reference, r);
    whole.min_candidate = std::min(whole.min_candidate, c);
    whole.max_candidate = std::max(whole.max_candidate, c);
    sums[0] += r, sums[1] += c, sums[2] += r * r, sums[3] += r * c, sums[4] += c * c;
  }
  const auto n = static_cast<double>(std::max<int64_t>(whole.finite, 1));
  whole.mean_reference = sums[0] / n;
  whole.mean_candidate = sums[1] / n;
  whole.mean_error = (sums[1] - sums[0]) / n;
  const double variance = sums[2] - sums[0] * sums[0] / n;
  if (variance > 0) {
    whole.factor = (sums[3] - sums[0] * sums[1] / n) / variance;
    whole.offset = (sums[1] - whole.factor * sums[0]) / n;
    double left = 0;
    for (int64_t position = 0; position < whole.count; ++position) {
      const double c = pair.candidate().AtPosition(position).real();
      const double r = pair.reference().AtPosition(position).real();
      const double rest = c - whole.factor * r - whole.offset;
      if (std::isfinite(rest)) left += rest * rest;
    }
    whole.left_after_fit = whole.l2 > 0 ? std::sqrt(left / whole.l2) : 0;
  }
  whole.l2 = std::sqrt(whole.l2);
  whole.relative_l2 = whole.l2 / std::sqrt(sums[2]);
  whole.rmse = whole.l2 / std::sqrt(n);
  whole.cosine = sums[3] / std::sqrt(sums[2] * sums[4]);
  std::stable_sort(failing.begin(), failing.end(),
                   [](const Element& a, const Element& b) { return a.abs_error > b.abs_error; });
  if (failing.size() > 10) failing.resize(10);
  comparison.worst = failing;
  comparison.verdict.outcome = whole.failed > 0 ? Outcome::kFail : Outcome::kPass;
  comparison.verdict.text = std::to_string(whole.failed) + " elements fail";
  comparison.verdict.failed_without_small = whole.failed;
  return comparison;
}

}  // namespace ops_debug::analysis
