#include "analysis/compare/sequence.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "analysis/compare/alignment.h"
#include "analysis/compare/compare.h"
#include "analysis/compare/error_structure.h"

namespace ops_debug::analysis {
namespace {

using proto::Tensor;
using proto::TensorSet;

std::string Count(size_t count, const char* one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) absl::StrAppend(&text, text.size() > 1 ? ", " : "", size);
  return text + "]";
}

Comparison MissingComparison(const Partners& partners, const TensorSet& candidate,
                             const TensorSet& reference) {
  const bool in_candidate = partners.candidate != nullptr;
  const Tensor& there = in_candidate ? *partners.candidate : *partners.reference;
  Comparison comparison;
  comparison.candidate_dtype = comparison.reference_dtype = there.dtype;
  comparison.shape = there.shape;
  comparison.verdict.outcome = Outcome::kNothingCompared;
  comparison.verdict.text =
      absl::StrCat("Missing: ", in_candidate ? "the reference " : "the candidate ",
                   in_candidate ? reference.path : candidate.path, " has no such tensor (",
                   Name(there.dtype), " ", ShapeText(there.shape), " in the other)");
  return comparison;
}

// Tensors that a capture named but did not keep, with its reason: in metadata "left_out", a JSON
// object.
void AddLeftOut(const char* side, const TensorSet& set, std::vector<std::string>* remarks) {
  size_t count = 0;
  std::string first;
  for (const auto& [key, text] : set.metadata) {
    if (key != "left_out" && !key.ends_with("/left_out")) continue;
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    count += json.size();
    if (!first.empty() || json.empty() || !json.begin()->is_string()) continue;
    first = absl::StrCat(key.substr(0, key.size() - std::string_view("left_out").size()),
                         json.begin().key(), ": ", json.begin()->get<std::string>());
  }
  if (count == 0) return;
  remarks->push_back(absl::StrCat("the ", side, "'s capture left out the values of ",
                                  Count(count, "tensor"), "; the first is ", first));
}

bool Differs(const ComparedPair& pair) {
  const WholeStatistics& whole = pair.comparison.whole;
  return Fails(pair) || whole.equal + whole.nan_both < whole.count;
}

}  // namespace

bool IsMissing(const ComparedPair& pair) {
  return pair.candidate.empty() != pair.reference.empty();
}

bool Fails(const ComparedPair& pair) {
  const Outcome outcome = pair.comparison.verdict.outcome;
  return !IsMissing(pair) && outcome != Outcome::kPass && outcome != Outcome::kNothingCompared;
}

void Conclude(DiffReport* report) {
  report->first_divergence = -1;
  report->passes = true;
  int64_t first_difference = -1;
  size_t missing_candidate = 0, missing_reference = 0, without_values = 0;
  for (size_t i = 0; i < report->pairs.size(); ++i) {
    const ComparedPair& pair = report->pairs[i];
    const auto position = static_cast<int64_t>(i);
    if (IsMissing(pair)) {
      report->passes = false;
      ++(pair.candidate.empty() ? missing_candidate : missing_reference);
      continue;
    }
    if (first_difference < 0 && Differs(pair)) first_difference = position;
    if (Fails(pair)) {
      report->passes = false;
      if (report->first_divergence < 0) report->first_divergence = position;
    } else if (pair.comparison.verdict.outcome == Outcome::kNothingCompared) {
      ++without_values;
    }
  }
  if (first_difference >= 0 && first_difference != report->first_divergence) {
    const ComparedPair& pair = report->pairs[static_cast<size_t>(first_difference)];
    report->remarks.push_back(
        absl::StrCat("the first that differs at all, within its tolerance, is \"", pair.tag,
                     "\": relative L2 ", pair.comparison.whole.relative_l2));
  }
  if (missing_candidate != 0) {
    report->remarks.push_back(absl::StrCat(Count(missing_candidate, "tensor"),
                                           " of the reference missing in the candidate"));
  }
  if (missing_reference != 0) {
    report->remarks.push_back(absl::StrCat(Count(missing_reference, "tensor"),
                                           " of the candidate missing in the reference"));
  }
  if (without_values != 0) {
    report->remarks.push_back(absl::StrCat(
        "of ", Count(without_values, "pair"),
        " nothing could be compared (no element, or NaN everywhere): not called right"));
  }
}

DiffReport CompareSets(const TensorSet& candidate, const TensorSet& reference, const NameMap* map,
                       const CompareOptions& options) {
  DiffReport report;
  report.candidate = candidate.path;
  report.reference = reference.path;
  report.title = absl::StrCat(candidate.path, " against ", reference.path);
  Alignment alignment = Align(candidate, reference, map);
  report.remarks = std::move(alignment.remarks);
  AddLeftOut("candidate", candidate, &report.remarks);
  AddLeftOut("reference", reference, &report.remarks);
  for (const Partners& partners : alignment.pairs) {
    ComparedPair pair;
    pair.tag = partners.tag;
    if (partners.candidate != nullptr) pair.candidate = partners.candidate->name;
    if (partners.reference != nullptr) pair.reference = partners.reference->name;
    if (partners.candidate == nullptr || partners.reference == nullptr) {
      pair.comparison = MissingComparison(partners, candidate, reference);
    } else {
      pair.comparison = Compare(*partners.candidate, *partners.reference, options);
      FindStructure(*partners.candidate, *partners.reference, &pair.comparison);
      pair.comparison.grid = {};  // large, and read by FindStructure only
    }
    pair.comparison.name = pair.tag;
    report.pairs.push_back(std::move(pair));
  }
  Conclude(&report);
  return report;
}

}  // namespace ops_debug::analysis
