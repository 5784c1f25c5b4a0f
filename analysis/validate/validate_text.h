// The report of a validation as text: the verdict, the break, the hints, then the details.
#pragma once

#include <string>

#include "analysis/compare/comparison_text.h"
#include "analysis/validate/validate.h"

namespace ops_debug::analysis {

std::string ValidateText(const ValidateReport& report, const TextOptions& options = {});

// The same as JSON: {"schema": 1, "verdict", "cases", "break", "gradients", ...}.
std::string ValidateJson(const ValidateReport& report);

// "passes", "FAILS", "could not be judged", "a provider failed".
std::string StateText(CaseState state);

}  // namespace ops_debug::analysis
