// Which axis explains the error, and which of its channels stand out.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// What is being located: squared differences, or failing elements (which also count those that are
// not finite on one side and so have no difference).
enum class Measure : uint8_t { kSquaredError, kFailed };

// kFailed if most failing elements have no difference to square.
Measure MeasureOf(const WholeStatistics& whole);
// Failing elements that are NaN or infinite on one side only.
int64_t NotFiniteOnOneSide(const WholeStatistics& whole);

// Elements of each cell of the grid: the last bin of an axis may be partial.
std::vector<int64_t> CellCounts(const ErrorGrid& grid, const std::vector<int64_t>& shape);

// Fills `explained` and `ranked` of each axis.
//
// explained: one-way analysis of variance of the cells' mean (squared error or failing share),
// weighted by their elements, the other axes in at most eight bins each, adjusted for the degrees
// of freedom, so that an axis of many bins does not explain noise. The only axis longer than 1
// explains all.
//
// ranked: a channel stands out if its share of the error is at least twice its share of the
// elements and the logarithm of its mean error lies at least 3.5 robust standard deviations (1.4826
// times the median absolute deviation) above the median of all channels of the axis. At most 32.
void RankChannels(Comparison* comparison);

}  // namespace ops_debug::analysis
