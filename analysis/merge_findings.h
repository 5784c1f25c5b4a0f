// Ranks of one job run the same code, so they make the same mistakes: findings of several processes
// that name the same place become one finding, which lists the processes.
#pragma once

#include <vector>

#include "analysis/process_book.h"
#include "analysis/report.h"

namespace ops_debug::analysis {

// Takes findings whose process_id is a number of `processes`; returns them with real process ids.
// The first of those that are merged speaks for all; counts add up. The order is kept.
std::vector<Finding> MergeProcesses(std::vector<Finding> findings, const ProcessBook& processes);

}  // namespace ops_debug::analysis
