// What a set of slices is called: the last tile, a warp's lanes, a channel.
#pragma once

#include <cstdint>

#include "analysis/compare/comparison.h"
#include "analysis/compare/slice_sets.h"

namespace ops_debug::analysis {

// Kind and text of the hint. `axis` may be kMemoryOrder; `innermost`: neighbouring threads usually
// take neighbouring indices of it.
PatternHint NamePeriod(const Period& found, int axis, bool innermost);
PatternHint NameRange(const Range& range, int axis, int64_t size, bool innermost);

}  // namespace ops_debug::analysis
