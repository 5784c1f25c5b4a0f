// The inputs and attributes that an operator is validated with: what the user gave, what
// ops-debug.yaml says, and what the operator itself tells of the rest.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/validate/input_contents.h"
#include "analysis/validate/options.h"
#include "analysis/validate/provider.h"

namespace ops_debug::analysis {

struct OperatorPlan {
  std::vector<InputPlan> inputs;
  nlohmann::json attributes = nlohmann::json::object();
  std::string description;
  std::optional<double> rtol, atol;  // of the operator's author
};

// `op` is asked; saved tensors have no answer, so that `reference` is asked in their place.
// `shapes` stand for --input-shape. Errors: kInvalidArgument: what to pass; else as
// DescribeOperator.
absl::StatusOr<OperatorPlan> PlanOperator(const Provider& op, const Provider& reference,
                                          const ValidateOptions& options,
                                          const std::vector<std::vector<int64_t>>& shapes);

// The inputs with their contents, named.
std::vector<proto::Tensor> MakeInputs(const OperatorPlan& plan, uint64_t seed);

}  // namespace ops_debug::analysis
