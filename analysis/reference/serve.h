// A reference as a provider (proto/provider.h): from a request's tensors to its answer.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/reference/operator.h"
#include "proto/tensor_file.h"

namespace ops_debug::reference {

// The response. Inputs belong to the operator's by name if every name is one of its, else in order.
// Error codes: kInvalidArgument: what does not fit; kUnimplemented: no gradients.
absl::StatusOr<proto::TensorSet> Answer(const Operator& op, const proto::TensorSet& request);

// Completes `question` = {"inputs": [{"name"?, "shape", "dtype"?}, ...], "attributes": {...}} to
// all inputs with shapes, types and contents, the outputs and the attributes that a provider must
// be told to do the same. What is
// needed and not given gets a shape that fits; what is optional and not given stays away.
absl::StatusOr<nlohmann::json> Describe(const Operator& op, const nlohmann::json& question);

}  // namespace ops_debug::reference
