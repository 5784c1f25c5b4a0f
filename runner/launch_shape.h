// Grid and block of a launch that nobody gave: what the kernel's own code says about them.
#pragma once

#include <string>
#include <vector>

#include "runner/expression.h"
#include "runner/launch_plan.h"

namespace ops_debug::runner {

// Sizes that the launch may be derived from; 0 = the kernel has no such parameter.
struct LaunchExtent {
  int64_t elements = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// Fills block, then grid of `plan`. What cannot be derived or is impossible becomes one problem
// each.
void PlanBlock(const LaunchRequest& request, const NameLookup& lookup, LaunchPlan* plan,
               std::vector<std::string>* problems);
void PlanGrid(const LaunchRequest& request, const NameLookup& lookup, const LaunchExtent& extent,
              LaunchPlan* plan, std::vector<std::string>* problems);

}  // namespace ops_debug::runner
