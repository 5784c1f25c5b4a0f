// A read that comes too early shows twice: it races with the write that it should have waited for,
// and, where it ran first, it read memory that nobody had written. Whoever orders the two has
// repaired both, so the race is reported and the uninitialised read belongs to it.
#pragma once

#include <vector>

#include "analysis/report.h"

namespace ops_debug::analysis {

// Removes uninitialised reads that a race among `findings` explains: the same instruction, or the
// same line and memory, on the reading side of the race.
void RemoveExplainedReads(std::vector<Finding>& findings);

// An index that has wrapped leads out of bounds: who computes it in 64 bits has repaired both.
// Removes accesses out of bounds at the place where an `index-overflow` of the same kernel was
// used, and tells that finding what was reached.
void RemoveAccessesOfWrappedIndexes(std::vector<Finding>& findings);

}  // namespace ops_debug::analysis
