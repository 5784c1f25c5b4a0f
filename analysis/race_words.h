// The words of races: what each side did, why nothing orders the two, and what would.
#pragma once

#include <string>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

// "block-barrier", "scope"...; empty if it is not known.
const char* MissingOrderName(proto::MissingOrder missing);

// Sets kind, cause, severity, message and advice, and the text of both accesses. `finding` holds
// its two accesses, and the allocation and array that they touch.
void DescribeRace(const proto::Race& race, Finding& finding);

}  // namespace ops_debug::analysis
