// --grad: are an operator's gradients those of the reference? Three witnesses: float64 central
// finite differences of the reference (truncation error h^2 f'''/6, rounding eps/h; with
// h = 6e-6 max(1, |x|) both near 1e-10), a random projection of them, and the reference's own
// gradients where it has any.
#pragma once

#include <string>
#include <vector>

#include "analysis/compare/report_data.h"
#include "analysis/validate/session.h"

namespace ops_debug::analysis {

struct GradientResult {
  std::vector<ComparedPair> pairs;   // one or two per input: "grad.weight"
  std::vector<std::string> hints;    // what a wrong gradient looks like it is
  std::vector<std::string> remarks;  // how it was judged
  bool passes = true;
  absl::Status problem;  // a provider could not or failed; nothing was judged
};

// `forward` holds both sides' outputs for `test`.
GradientResult CheckGradients(const ValidateSession& session, const ValidateCase& test,
                              const CaseResult& forward);

}  // namespace ops_debug::analysis
