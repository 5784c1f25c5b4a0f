// The cases of --sweep: adversarial contents, and sizes around the edges of tiles and warps.
#pragma once

#include <string>
#include <vector>

#include "analysis/validate/session.h"

namespace ops_debug::analysis {

// The leading and spatial dimensions cut down so that many cases are cheap; the dimension of
// channels (axis 1 of three and more, the last of two) stays whole.
std::vector<int64_t> SmallShape(const std::vector<int64_t>& shape);

// Whether the plan's shapes all follow from the first, so that it may be changed.
bool FollowsFirstShape(const ValidateOptions& options);

// Beside the base case. What cannot be planned is told in `remarks`.
std::vector<ValidateCase> SweepCases(const ValidateSession& session, const OperatorPlan& base,
                                     std::vector<std::string>* remarks);

}  // namespace ops_debug::analysis
