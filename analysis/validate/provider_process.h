// Asking providers: what an operator's inputs are, and what comes out of it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/validate/provider.h"
#include "proto/tensor.h"

namespace ops_debug::analysis {

struct ProviderRequest {
  std::vector<proto::Tensor> inputs;      // in the operator's order, named
  std::vector<proto::Tensor> cotangents;  // one per output, if gradients are asked for
  nlohmann::json attributes = nlohmann::json::object();
  bool float64 = false;  // compute and answer in it
  uint64_t seed = 0;
};

struct ProviderResponse {
  std::vector<proto::Tensor> outputs;
  std::map<std::string, proto::Tensor> gradients;  // by the input's name
  std::string description;
};

// Error codes of all calls: kUnimplemented: the provider cannot do it (its own words);
// kInvalidArgument: the question is wrong for it;
// kUnavailable: it failed. Safe to call from several threads.

// `question` as in "COMMAND --describe JSON".
absl::StatusOr<nlohmann::json> DescribeOperator(const Provider& provider,
                                                const nlohmann::json& question);

// One answer per request, in order. One process answers many requests; after a failure the rest
// goes to a new one. `folder` holds the files in between. Saved tensors answer every request with
// themselves.
std::vector<absl::StatusOr<ProviderResponse>> CallProvider(
    const Provider& provider, const std::vector<ProviderRequest>& requests,
    const std::string& folder);

}  // namespace ops_debug::analysis
