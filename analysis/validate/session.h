// One validation: candidate and reference asked for the same cases, their outputs compared.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/compare/comparison.h"
#include "analysis/compare/report_data.h"
#include "analysis/validate/operator_plan.h"
#include "analysis/validate/options.h"
#include "analysis/validate/provider.h"
#include "analysis/validate/provider_process.h"

namespace ops_debug::analysis {

struct ValidateSession {
  ValidateOptions options;
  ProviderTools tools;
  Provider op, reference;
  std::optional<Provider> trusted;
  std::string folder;  // for files in between
};

// What both sides are asked.
struct ValidateCase {
  std::string name;  // "random", "zeros", "last dim 33"
  OperatorPlan plan;
  std::vector<proto::Tensor> inputs;
  // Contents span many magnitudes: sums cancel, so that the absolute tolerance follows the largest
  // value of the reference.
  bool scaled = false;
};

enum class CaseState : uint8_t { kPass, kFail, kUnjudged, kProviderFailed };

struct CaseResult {
  std::string name, shapes;
  CaseState state = CaseState::kPass;
  absl::Status problem;  // a provider could not or failed: nothing was judged
  std::vector<ComparedPair> pairs;
  std::vector<std::string> remarks;
  // For further questions and for `ops-debug diff`.
  ProviderResponse candidate, reference;
};

ValidateCase MakeCase(const std::string& name, const OperatorPlan& plan, uint64_t seed);

// One request for `plan`'s inputs.
ProviderRequest RequestOf(const ValidateCase& test, const ValidateOptions& options, bool float64);

// The reference's answers, in float64 where it can, else in the inputs' types: then
// `*in_float64` is false.
std::vector<absl::StatusOr<ProviderResponse>> CallReference(const ValidateSession& session,
                                                            std::vector<ProviderRequest> requests,
                                                            bool* in_float64);

std::vector<CaseResult> RunCases(const ValidateSession& session,
                                 const std::vector<ValidateCase>& cases);

// The tolerance of a case: the flags', else the author's, else the default (unset).
CompareOptions ToleranceOf(const ValidateSession& session, const OperatorPlan& plan);

// Compare and FindStructure, named.
ComparedPair ComparePair(const std::string& tag, const proto::Tensor& candidate,
                         const proto::Tensor& reference, const CompareOptions& options);

bool Passes(const Comparison& comparison);

}  // namespace ops_debug::analysis
