// Whether the candidate holds the reference's values at other places: an index map that is wrong,
// not an arithmetic fault.
#pragma once

#include <vector>

#include "analysis/compare/error_sample.h"
#include "analysis/compare/found_pattern.h"

namespace ops_debug::analysis {

// Tries on the sample: two axes transposed (or written in the other's layout), shifted along an
// axis or in memory order, halves or neighbours of an axis swapped, an axis reversed. A map holds
// if at least 90 % of the failing elements equal the reference at the map's place, and at least 90
// % of the reference's elements there are found in the candidate at the inverse place (else zeros
// would match the zeros of a sparse reference). Failing that, on at most 2^16 elements around the
// worst one: whether the failing values are the reference's in another order ("moved"), or at least
// their sum is kept while values went from and to zeros. The best one, or none.
std::vector<FoundPattern> FindMap(const TensorPair& pair, const Comparison& comparison,
                                  const std::vector<FailingElement>& failing);

}  // namespace ops_debug::analysis
