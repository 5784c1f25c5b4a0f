// How the value differs where it is wrong: a factor, an offset, the sign, zeros that nobody
// overwrote, one value everywhere, NaN, too few bits.
#pragma once

#include <vector>

#include "analysis/compare/error_sample.h"
#include "analysis/compare/found_pattern.h"

namespace ops_debug::analysis {

// Of all elements by the least-squares fit that the pass over memory left, if it takes away 90 % of
// the difference; else of the failing elements of the sample, if at least 90 % of them agree (at
// least eight, with references that differ). A factor is named if it is one that code gets wrong:
// sizes of axes, their roots and reciprocals, n/(n-1), powers of two, log2(e).
std::vector<FoundPattern> FindValuePatterns(const Comparison& comparison,
                                            const std::vector<FailingElement>& failing);

}  // namespace ops_debug::analysis
