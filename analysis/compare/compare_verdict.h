// From sums to a verdict.
#pragma once

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// Tolerance and small value of `out`, from the options and its types.
void ChooseTolerance(const CompareOptions& options, Comparison* out);

// False: the verdict says why there is nothing to compare.
bool MayBeCompared(const proto::Tensor& candidate, const proto::Tensor& reference, Comparison* out);

struct JudgedSums {
  double over = 0;            // max of |d| - rtol |r|
  double passing_rtol = 0;    // max of (|d| - atol) / |r|
  double zero_reference = 0;  // max of |d| where r = 0
  int64_t mismatches = 0;     // fail whatever the tolerance
  int64_t excused = 0;        // failures that the small-value rule lets pass
};
void Judge(const JudgedSums& sums, Comparison* out);

}  // namespace ops_debug::analysis
