// A bounded look back at the tensors, where the sums that the pass over memory left are too coarse
// for a hint: failing elements drawn from the cells of the error grid, and slices of long axes.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "analysis/compare/comparison.h"
#include "analysis/compare/element_value.h"
#include "analysis/compare/error_axes.h"

namespace ops_debug::analysis {

// Two tensors of one shape side by side. Keeps references.
class TensorPair {
 public:
  TensorPair(const proto::Tensor& candidate, const proto::Tensor& reference,
             const Tolerance& tolerance);

  std::complex<double> Candidate(const std::vector<int64_t>& index) const {
    return candidate_.At(index);
  }
  std::complex<double> Reference(const std::vector<int64_t>& index) const {
    return reference_.At(index);
  }
  const ElementReader& candidate() const { return candidate_; }
  const ElementReader& reference() const { return reference_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  bool Fails(std::complex<double> candidate, std::complex<double> reference) const;

 private:
  ElementReader candidate_, reference_;
  const std::vector<int64_t>& shape_;
  Tolerance tolerance_;
};

struct FailingElement {
  std::vector<int64_t> index;
  std::complex<double> candidate, reference;
};

// About 4096 failing elements from at least 64 cells of the grid that have any (a quarter those
// with the most, the others picked by chance, always the same), and the worst ones; in row-major
// order. Looks at no more than a million elements.
std::vector<FailingElement> SampleFailing(const TensorPair& pair, const Comparison& comparison);

// One slice of an axis, or one element of memory order.
struct Slice {
  int64_t index = 0;
  double mass = 0;       // of the measure
  double elements = 0;   // looked at
  double effective = 0;  // how many elements of this size carry the mass: 1 if one does it alone
  double failed = 0;     // elements
  double squared_reference = 0;
};
constexpr int kMemoryOrder = -1;  // in place of an axis: the row-major position of elements
struct Profile {
  int axis = kMemoryOrder;
  int64_t size = 0;
  bool complete = true;  // all slices; else windows of consecutive ones
  std::vector<Slice> slices;
};

// Every slice, from the sums of the pass over memory. Empty if the axis was binned.
Profile ProfileOfChannels(const Axis& axis, Measure measure);
// Four windows of at most 1024 slices: the begin, the end, and around failing elements; of each
// slice at most eight elements.
Profile ProfileOfWindows(const TensorPair& pair, const std::vector<FailingElement>& failing,
                         int axis, Measure measure);

}  // namespace ops_debug::analysis
