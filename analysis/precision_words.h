// What a numerical fault is called, how grave it is, and the sentences about it.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

struct NumericWords {
  std::string kind, cause;
  Severity severity = Severity::kError;
  std::string message, advice;
};

// Of all cases at one place.
struct NumericTotals {
  uint64_t cases = 0, executions = 0;  // executions 0: they were not counted
  double worst = 0;
};

NumericWords Describe(const proto::NumericalFault& fault, const NumericTotals& totals);

// Of something that follows from another fault: "it becomes NaN: sub.f32: (+inf) - (+inf)".
std::string ConsequenceText(const proto::NumericalFault& fault);

}  // namespace ops_debug::analysis
