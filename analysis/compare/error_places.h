// Regular places of the error: every k-th index of an axis, edges of tiles, lanes of a warp, single
// channels, runs, the tile at the end.
#pragma once

#include <vector>

#include "analysis/compare/error_sample.h"
#include "analysis/compare/found_pattern.h"

namespace ops_debug::analysis {

// At most one pattern per axis; instead, one of memory order if it is narrower. A set of slices is
// a pattern if it holds at least 80 % of the error, the error is at least ten times as dense in it
// as outside, at least 80 % of its slices take part, and more than one element carries it: random
// errors, a single outlier and scattered slices give none. Sets of several axes that only together
// hold it (the borders of an image, the edges of tiles) are one pattern.
std::vector<FoundPattern> FindPlaces(const TensorPair& pair, const Comparison& comparison,
                                     const std::vector<FailingElement>& failing);

}  // namespace ops_debug::analysis
