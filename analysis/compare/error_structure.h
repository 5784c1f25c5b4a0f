// What the errors have in common: which axis, which channel and tile, which regular pattern.
#pragma once

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// Fills Axis::ranked and explained, terms and patterns from what Compare gathered; looks at the
// tensors again only where a hint needs it (transposed, shifted, swapped halves: on a sample). Does
// nothing for tensors that are equal.
void FindStructure(const proto::Tensor& candidate, const proto::Tensor& reference,
                   Comparison* comparison);

}  // namespace ops_debug::analysis
