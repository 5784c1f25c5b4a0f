// `ops-debug validate`: from an operator's name to a verdict.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/validate/break_point.h"
#include "analysis/validate/gradients.h"
#include "analysis/validate/options.h"
#include "analysis/validate/session.h"

namespace ops_debug::analysis {

// Everything that was found out, as plain data.
struct ValidateReport {
  std::string op, reference;  // names, as the user wrote them
  std::string op_description, reference_description;
  std::vector<CaseResult> cases;  // the first is what the user asked for
  std::optional<BreakPoint> break_point;
  std::optional<GradientResult> gradients;
  std::vector<std::string> remarks;

  CaseState State() const;    // the worst of all
  DiffReport AsDiff() const;  // every pair, for JSON and HTML
};

// Errors: kInvalidArgument and kNotFound: usage; kUnimplemented: cannot be judged; else a provider
// failed.
absl::StatusOr<ValidateReport> Validate(const ValidateOptions& options, const ProviderTools& tools);

}  // namespace ops_debug::analysis
