// Derivatives of the reference by central differences in float64.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/validate/session.h"

namespace ops_debug::analysis {

// Values per output of the reference, in its order: the loss is the sum of output * cotangent.
using Cotangents = std::vector<std::vector<double>>;

// The derivative of every output element along one direction, per output.
using Directional = std::vector<std::vector<double>>;

// A direction in one input, dense.
struct Direction {
  size_t input = 0;
  std::vector<double> values;
};

// One answer per direction. Error: the reference failed or does not compute in float64.
absl::StatusOr<std::vector<Directional>> DifferencesAlong(const ValidateSession& session,
                                                          const ValidateCase& test,
                                                          const std::vector<Direction>& directions);

// sum of cotangent * derivative.
double LossDerivative(const Cotangents& cotangents, const Directional& derivative);

}  // namespace ops_debug::analysis
