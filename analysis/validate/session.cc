#include "analysis/validate/session.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "analysis/compare/compare.h"
#include "analysis/compare/error_structure.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

using Answers = std::vector<absl::StatusOr<ProviderResponse>>;

CaseState StateOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ? CaseState::kProviderFailed
                                                         : CaseState::kUnjudged;
}

std::string ShapesOf(const std::vector<proto::Tensor>& inputs) {
  return absl::StrJoin(inputs, " ", [](std::string* text, const proto::Tensor& input) {
    absl::StrAppend(text, input.name, ":", ShapeText(input.shape));
  });
}

double LargestMagnitude(const proto::Tensor& tensor) {
  double largest = 0;
  for (const double value : ElementValues(tensor)) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// Outputs belong together by name if all names agree, else in their order.
const proto::Tensor* Partner(const proto::Tensor& output, size_t position,
                             const std::vector<proto::Tensor>& others) {
  for (const proto::Tensor& other : others) {
    if (other.name == output.name) return &other;
  }
  return position < others.size() ? &others[position] : nullptr;
}

class Judge {
 public:
  Judge(const ValidateSession& session, const ValidateCase& test, CaseResult* result)
      : session_(session), test_(test), result_(result) {}

  void CompareOutputs() {
    const auto& candidate = result_->candidate.outputs;
    const auto& reference = result_->reference.outputs;
    for (size_t i = 0; i < candidate.size(); ++i) {
      const proto::Tensor* partner = Partner(candidate[i], i, reference);
      if (partner == nullptr) {
        // More outputs than the reference has: masks, saved statistics.
        result_->remarks.push_back(absl::StrCat("output ", candidate[i].name,
                                                " was not compared: ", session_.reference.name,
                                                " has ", reference.size(), " outputs"));
        continue;
      }
      AddPair(candidate[i], *partner);
    }
    if (candidate.size() < reference.size()) {
      result_->remarks.push_back(absl::StrCat(session_.reference.name, " has ", reference.size(),
                                              " outputs, ", session_.op.name, " ", candidate.size(),
                                              ": only these were compared"));
    }
    if (result_->pairs.empty()) {
      result_->state = CaseState::kUnjudged;
      result_->problem = absl::UnimplementedError("neither side has an output to compare");
    } else if (std::all_of(result_->pairs.begin(), result_->pairs.end(),
                           [](const ComparedPair& pair) {
                             return pair.comparison.verdict.outcome == Outcome::kNothingCompared;
                           })) {
      result_->state = CaseState::kUnjudged;  // empty, or NaN alone: not called right
    }
  }

  // The trusted implementation's error decides what is good for these types.
  void AddDualRatio(const std::vector<proto::Tensor>& trusted) {
    for (size_t i = 0; i < result_->pairs.size() && i < trusted.size(); ++i) {
      const proto::Tensor* partner = Partner(trusted[i], i, result_->reference.outputs);
      if (partner == nullptr) continue;
      const Comparison theirs = Compare(trusted[i], *partner, {});
      Comparison& ours = result_->pairs[i].comparison;
      if (theirs.whole.relative_l2 > 0) {
        ours.verdict.dual_ratio = ours.whole.relative_l2 / theirs.whole.relative_l2;
      } else {
        ours.verdict.dual_ratio = ours.whole.relative_l2 > 0 ? HUGE_VAL : 1.0;
      }
    }
  }

 private:
  void AddPair(const proto::Tensor& candidate, const proto::Tensor& reference) {
    CompareOptions options = ToleranceOf(session_, test_.plan);
    if (test_.scaled) {
      const double atol =
          options.atol.value_or(DefaultTolerance(candidate.dtype, reference.dtype).atol);
      options.atol = std::max(atol * LargestMagnitude(reference), SmallestNormal(candidate.dtype));
    }
    result_->pairs.push_back(ComparePair(candidate.name, candidate, reference, options));
    if (!Passes(result_->pairs.back().comparison)) result_->state = CaseState::kFail;
  }

  const ValidateSession& session_;
  const ValidateCase& test_;
  CaseResult* result_;
};

}  // namespace

bool Passes(const Comparison& comparison) {
  return comparison.verdict.outcome == Outcome::kPass ||
         comparison.verdict.outcome == Outcome::kNothingCompared;
}

CompareOptions ToleranceOf(const ValidateSession& session, const OperatorPlan& plan) {
  const OperatorEntry& book = session.op.settings;
  const auto first = [](std::initializer_list<std::optional<double>> choices) {
    for (const std::optional<double>& choice : choices) {
      if (choice) return choice;
    }
    return std::optional<double>();
  };
  CompareOptions options;
  options.rtol = first({session.options.rtol, book.rtol, plan.rtol});
  options.atol = first({session.options.atol, book.atol, plan.atol});
  return options;
}

ComparedPair ComparePair(const std::string& tag, const proto::Tensor& candidate,
                         const proto::Tensor& reference, const CompareOptions& options) {
  ComparedPair pair;
  pair.tag = tag;
  pair.candidate = candidate.name;
  pair.reference = reference.name;
  pair.comparison = Compare(candidate, reference, options);
  pair.comparison.name = tag;
  FindStructure(candidate, reference, &pair.comparison);
  return pair;
}

ValidateCase MakeCase(const std::string& name, const OperatorPlan& plan, uint64_t seed) {
  return {.name = name, .plan = plan, .inputs = MakeInputs(plan, seed)};
}

ProviderRequest RequestOf(const ValidateCase& test, const ValidateOptions& options, bool float64) {
  ProviderRequest request;
  request.inputs = test.inputs;
  request.attributes = test.plan.attributes;
  request.float64 = float64;
  request.seed = options.seed;
  return request;
}

Answers CallReference(const ValidateSession& session, std::vector<ProviderRequest> requests,
                      bool* in_float64) {
  for (ProviderRequest& request : requests) request.float64 = true;
  Answers answers = CallProvider(session.reference, requests, session.folder);
  *in_float64 = true;
  if (answers.empty() || answers[0].status().code() != absl::StatusCode::kUnimplemented) {
    return answers;
  }
  for (ProviderRequest& request : requests) request.float64 = false;
  Answers narrow = CallProvider(session.reference, requests, session.folder);
  if (!narrow[0].ok()) return answers;
  *in_float64 = false;
  return narrow;
}

std::vector<CaseResult> RunCases(const ValidateSession& session,
                                 const std::vector<ValidateCase>& cases) {
  std::vector<ProviderRequest> requests;
  for (const ValidateCase& test : cases) {
    requests.push_back(RequestOf(test, session.options, false));
  }
  // Side by side: either may take its time to start.
  std::future<Answers> candidate = std::async(
      std::launch::async, [&] { return CallProvider(session.op, requests, session.folder); });
  bool in_float64 = true;
  const Answers references = CallReference(session, requests, &in_float64);
  const Answers candidates = candidate.get();
  const Answers trusted =
      session.trusted ? CallProvider(*session.trusted, requests, session.folder) : Answers{};
  std::vector<CaseResult> results;
  for (size_t i = 0; i < cases.size(); ++i) {
    CaseResult result;
    result.name = cases[i].name;
    result.shapes = ShapesOf(cases[i].inputs);
    for (const auto* answer : {&candidates[i], &references[i]}) {
      if (answer->ok() || !result.problem.ok()) continue;
      result.state = StateOf(answer->status());
      result.problem = answer->status();
    }
    if (result.problem.ok()) {
      result.candidate = *candidates[i];
      result.reference = *references[i];
      Judge judge(session, cases[i], &result);
      judge.CompareOutputs();
      if (!in_float64) {
        result.remarks.push_back(absl::StrCat(session.reference.name,
                                              " cannot compute in float64: it computed in the ",
                                              "inputs' types, its own rounding counts, too"));
      }
      if (!trusted.empty() && trusted[i].ok()) judge.AddDualRatio(trusted[i]->outputs);
      if (!trusted.empty() && !trusted[i].ok()) {
        result.remarks.push_back(
            absl::StrCat("no dual-benchmark ratio: ", trusted[i].status().message()));
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace ops_debug::analysis
