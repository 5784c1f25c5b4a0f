#include "analysis/compare/error_sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace ops_debug::analysis {
namespace {

constexpr size_t kMostFailing = 4096, kLeastCells = 64;
constexpr int64_t kMostLookedAt = 1 << 20;
constexpr int64_t kWindow = 1024;
constexpr size_t kElementsPerSlice = 8;

// Knuth's MMIX generator: the same cells in every run.
class Picker {
 public:
  uint64_t Next(uint64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % below;
  }

 private:
  uint64_t state_ = 1;
};

std::vector<size_t> CellsToVisit(const ErrorGrid& grid) {
  std::vector<size_t> failing;
  for (size_t i = 0; i < grid.failed.size(); ++i) {
    if (grid.failed[i] > 0) failing.push_back(i);
  }
  // Of small cells more.
  size_t of_cell = 1;
  for (const int64_t size : grid.bin_sizes) {
    of_cell = std::min(of_cell * static_cast<size_t>(size), kMostFailing);
  }
  const size_t most = std::max(kMostFailing / of_cell, kLeastCells);
  if (failing.size() <= most) return failing;
  std::stable_sort(failing.begin(), failing.end(),
                   [&](size_t a, size_t b) { return grid.failed[a] > grid.failed[b]; });
  // Equal counts are common, so that the first ones alone could be one corner of the tensor.
  Picker picker;
  for (size_t i = most / 4; i < most; ++i) {
    std::swap(failing[i], failing[i + picker.Next(failing.size() - i)]);
  }
  failing.resize(most);
  return failing;
}

// Calls visit(index) for the elements of the cell in row-major order until it returns false.
template <class Visit>
void ForElements(const ErrorGrid& grid, const std::vector<int64_t>& shape, size_t cell,
                 const Visit& visit) {
  const size_t rank = shape.size();
  std::vector<int64_t> begin(rank), end(rank);
  for (size_t axis = rank; axis-- > 0;) {
    const auto bins = static_cast<size_t>(grid.bins[axis]);
    begin[axis] = static_cast<int64_t>(cell % bins) * grid.bin_sizes[axis];
    end[axis] = std::min(begin[axis] + grid.bin_sizes[axis], shape[axis]);
    if (begin[axis] >= end[axis]) return;
    cell /= bins;
  }
  std::vector<int64_t> index = begin;
  while (visit(index)) {
    size_t axis = rank;
    while (axis > 0 && ++index[axis - 1] == end[axis - 1]) {
      index[axis - 1] = begin[axis - 1];
      --axis;
    }
    if (axis == 0) return;
  }
}

// Sums over the elements of one slice that are looked at.
class SliceSum {
 public:
  SliceSum(const TensorPair& pair, Measure measure) : pair_(pair), measure_(measure) {}

  void Add(std::complex<double> candidate, std::complex<double> reference) {
    ++elements_;
    double mass = pair_.Fails(candidate, reference) ? 1 : 0;
    failed_ += mass;
    const double squared = std::norm(reference);
    if (std::isfinite(squared)) squared_reference_ += squared;
    if (measure_ == Measure::kSquaredError) {
      mass = std::norm(candidate - reference);
      if (!std::isfinite(mass)) return;
    }
    mass_ += mass;
    largest_ = std::max(largest_, mass);
  }
  Slice Result(int64_t index) const {
    return {
        index, mass_, elements_, largest_ > 0 ? mass_ / largest_ : 0, failed_, squared_reference_};
  }

 private:
  const TensorPair& pair_;
  Measure measure_;
  double mass_ = 0, largest_ = 0, elements_ = 0, failed_ = 0, squared_reference_ = 0;
};

// Begins of windows that do not overlap, in order.
std::set<int64_t> WindowBegins(int64_t size, const std::vector<int64_t>& around) {
  const int64_t windows = (size + kWindow - 1) / kWindow;
  std::set<int64_t> begins = {0, (windows - 1) * kWindow};
  for (const int64_t position : around) {
    if (begins.size() >= 4) break;
    begins.insert(position / kWindow * kWindow);
  }
  return begins;
}

}  // namespace

TensorPair::TensorPair(const proto::Tensor& candidate, const proto::Tensor& reference,
                       const Tolerance& tolerance)
    : candidate_(candidate),
      reference_(reference),
      shape_(reference.shape),
      tolerance_(tolerance) {}

bool TensorPair::Fails(std::complex<double> candidate, std::complex<double> reference) const {
  const auto nan = [](std::complex<double> z) {
    return std::isnan(z.real()) || std::isnan(z.imag());
  };
  if (candidate == reference) return false;
  if (nan(candidate) || nan(reference)) return nan(candidate) != nan(reference);
  const double distance = std::abs(candidate - reference);
  return !std::isfinite(distance) ||
         distance > tolerance_.atol + tolerance_.rtol * std::abs(reference);
}

std::vector<FailingElement> SampleFailing(const TensorPair& pair, const Comparison& comparison) {
  const ErrorGrid& grid = comparison.grid;
  std::vector<FailingElement> failing;
  std::set<int64_t> seen;
  const auto take = [&](const std::vector<int64_t>& index) {
    const std::complex<double> candidate = pair.Candidate(index), reference = pair.Reference(index);
    if (!pair.Fails(candidate, reference)) return false;
    if (seen.insert(pair.reference().Ravel(index)).second) {
      failing.push_back({index, candidate, reference});
    }
    return true;
  };
  for (const Element& element : comparison.worst) {
    if (element.index.size() == pair.shape().size()) take(element.index);
  }
  if (grid.bins.size() == pair.shape().size()) {
    const std::vector<size_t> cells = CellsToVisit(grid);
    for (const size_t cell : cells) {
      size_t left = std::max<size_t>(kMostFailing / cells.size(), 1);
      int64_t looked_at = 0;
      ForElements(grid, pair.shape(), cell, [&](const std::vector<int64_t>& index) {
        if (take(index)) --left;
        return left > 0 && ++looked_at < kMostLookedAt / static_cast<int64_t>(cells.size());
      });
    }
  }
  std::sort(failing.begin(), failing.end(),
            [](const FailingElement& a, const FailingElement& b) { return a.index < b.index; });
  return failing;
}

Profile ProfileOfChannels(const Axis& axis, Measure measure) {
  Profile profile{static_cast<int>(axis.axis), axis.size, true, {}};
  if (axis.bin != 1) return profile;
  for (const Channel& channel : axis.channels) {
    Slice slice{channel.index,
                channel.squared_error,
                static_cast<double>(channel.count),
                0,
                static_cast<double>(channel.failed),
                channel.squared_reference};
    if (measure == Measure::kFailed) {
      slice.mass = slice.effective = static_cast<double>(channel.failed);
    } else if (channel.max_abs > 0 && std::isfinite(channel.max_abs)) {
      slice.effective = channel.squared_error / channel.max_abs / channel.max_abs;
    } else if (channel.max_abs > 0) {
      slice.effective = slice.elements;  // its largest difference is infinite: not known
    }
    profile.slices.push_back(slice);
  }
  return profile;
}

Profile ProfileOfWindows(const TensorPair& pair, const std::vector<FailingElement>& failing,
                         int axis, Measure measure) {
  const bool memory = axis == kMemoryOrder;
  const auto at = static_cast<size_t>(memory ? 0 : axis);
  Profile profile{axis, memory ? pair.reference().count() : pair.shape()[at], false, {}};
  std::vector<int64_t> around;
  std::vector<std::vector<int64_t>> lines;  // indices of which the axis' own is replaced
  // Spread over the sample, so that not all come from one cell.
  const size_t step = std::max<size_t>(failing.size() / kElementsPerSlice, 1);
  for (size_t i = step / 2; i < failing.size(); i += step) {
    around.push_back(memory ? pair.reference().Ravel(failing[i].index) : failing[i].index[at]);
    if (lines.size() < kElementsPerSlice) lines.push_back(failing[i].index);
  }
  if (!memory) {
    // Different elements of the sample can name one line.
    for (auto& line : lines) line[at] = 0;
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  }
  for (const int64_t begin : WindowBegins(profile.size, around)) {
    for (int64_t i = begin; i < std::min(begin + kWindow, profile.size); ++i) {
      SliceSum sum(pair, measure);
      if (memory) {
        sum.Add(pair.candidate().AtPosition(i), pair.reference().AtPosition(i));
      } else {
        for (auto& line : lines) {
          line[at] = i;
          sum.Add(pair.Candidate(line), pair.Reference(line));
        }
      }
      profile.slices.push_back(sum.Result(i));
    }
  }
  return profile;
}

}  // namespace ops_debug::analysis
