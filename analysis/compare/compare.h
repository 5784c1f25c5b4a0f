// The pass over memory: fills whole, worst, histograms, heat, the axes' channels and grid of a
// Comparison, and the verdict.
#pragma once

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// Reads each element once, in blocks that stay in cache, on all processors; beyond the inputs it
// needs at most 64 MiB. Any dtypes of one class, any strides. Never fails: what cannot be compared
// is in the verdict.
Comparison Compare(const proto::Tensor& candidate, const proto::Tensor& reference,
                   const CompareOptions& options);

}  // namespace ops_debug::analysis
