#include "analysis/validate/validate_text.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/compare/comparison_json.h"

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::ordered_json;

std::string Indented(const std::string& text, const std::string& indent) {
  std::string body = text;
  while (!body.empty() && body.back() == '\n') body.pop_back();
  return indent + absl::StrReplaceAll(body, {{"\n", "\n" + indent}}) + "\n";
}

const ComparedPair* FirstWrong(const std::vector<ComparedPair>& pairs) {
  for (const ComparedPair& pair : pairs) {
    if (!Passes(pair.comparison)) return &pair;
  }
  return nullptr;
}

// "output0: max abs 1e-7, max rel 3e-6, relative L2 2e-7".
std::string PairLine(const ComparedPair& pair) {
  const WholeStatistics& whole = pair.comparison.whole;
  std::string line = absl::StrFormat("%s: %s\n    max abs %.3g, max rel %.3g, relative L2 %.3g",
                                     pair.tag, pair.comparison.verdict.text, whole.max_abs,
                                     whole.max_rel, whole.relative_l2);
  if (pair.comparison.verdict.dual_ratio) {
    absl::StrAppendFormat(&line, ", %.3g times the trusted implementation's error",
                          *pair.comparison.verdict.dual_ratio);
  }
  return line + "\n";
}

const char* StateWord(CaseState state) {
  switch (state) {
    case CaseState::kPass:
      return "pass";
    case CaseState::kFail:
      return "FAIL";
    case CaseState::kUnjudged:
      return "not judged";
    case CaseState::kProviderFailed:
      break;
  }
  return "provider failed";
}

// One row per case.
std::string CaseTable(const std::vector<CaseResult>& cases) {
  size_t widest = 4;
  for (const CaseResult& result : cases) widest = std::max(widest, result.name.size());
  std::string text = absl::StrFormat("\ncases\n  %-*s  %-15s  %-10s  %-10s  %s\n", int(widest),
                                     "case", "verdict", "max abs", "max rel", "inputs");
  for (const CaseResult& result : cases) {
    double max_abs = 0, max_rel = 0;
    for (const ComparedPair& pair : result.pairs) {
      max_abs = std::max(max_abs, pair.comparison.whole.max_abs);
      max_rel = std::max(max_rel, pair.comparison.whole.max_rel);
    }
    absl::StrAppendFormat(&text, "  %-*s  %-15s  %-10.3g  %-10.3g  %s\n", int(widest), result.name,
                          StateWord(result.state), max_abs, max_rel, result.shapes);
    if (!result.problem.ok()) text += Indented(std::string(result.problem.message()), "      ");
  }
  return text;
}

std::string CaseDetails(const CaseResult& result, const TextOptions& options) {
  std::string text;
  for (const ComparedPair& pair : result.pairs) {
    text += Passes(pair.comparison) ? PairLine(pair) : ComparisonText(pair.comparison, options);
  }
  if (!result.problem.ok()) absl::StrAppend(&text, result.problem.message(), "\n");
  for (const std::string& remark : result.remarks) absl::StrAppend(&text, "note: ", remark, "\n");
  return text;
}

std::string GradientText(const GradientResult& gradients, const TextOptions& options) {
  std::string text = "\ngradients\n";
  if (!gradients.problem.ok()) {
    return text + Indented(absl::StrCat("not judged: ", gradients.problem.message()), "  ");
  }
  for (const ComparedPair& pair : gradients.pairs) {
    text += Indented(
        Passes(pair.comparison) ? PairLine(pair) : ComparisonText(pair.comparison, options), "  ");
  }
  for (const std::string& remark : gradients.remarks) absl::StrAppend(&text, "  ", remark, "\n");
  return text;
}

Json PairJson(const ComparedPair& pair) {
  Json json = ComparisonJson(pair.comparison);
  json["name"] = pair.tag;
  json["passes"] = Passes(pair.comparison);
  return json;
}

Json PairsJson(const std::vector<ComparedPair>& pairs) {
  Json list = Json::array();
  for (const ComparedPair& pair : pairs) list.push_back(PairJson(pair));
  return list;
}

}  // namespace

std::string StateText(CaseState state) {
  switch (state) {
    case CaseState::kPass:
      return "passes";
    case CaseState::kFail:
      return "FAILS";
    case CaseState::kUnjudged:
      return "could not be judged";
    case CaseState::kProviderFailed:
      break;
  }
  return "could not be run";
}

std::string ValidateText(const ValidateReport& report, const TextOptions& options) {
  std::string text =
      absl::StrCat(report.op, " ", StateText(report.State()), " against ", report.reference, "\n");
  if (report.break_point) absl::StrAppend(&text, "  ", report.break_point->text, "\n");
  if (report.gradients) {
    for (const std::string& hint : report.gradients->hints) {
      absl::StrAppend(&text, "  ", hint, "\n");
    }
  }
  absl::StrAppend(&text, "  candidate  ", report.op_description, "\n  reference  ",
                  report.reference_description, "\n");
  const auto failing =
      std::find_if(report.cases.begin(), report.cases.end(),
                   [](const CaseResult& result) { return FirstWrong(result.pairs) != nullptr; });
  const CaseResult& shown = failing == report.cases.end() ? report.cases.front() : *failing;
  absl::StrAppend(&text, "\n", shown.name, " inputs ", shown.shapes, "\n",
                  Indented(CaseDetails(shown, options), "  "));
  if (report.gradients) text += GradientText(*report.gradients, options);
  if (report.cases.size() > 1) text += CaseTable(report.cases);
  for (const std::string& remark : report.remarks) absl::StrAppend(&text, "note: ", remark, "\n");
  return text;
}

std::string ValidateJson(const ValidateReport& report) {
  Json root = {{"schema", 1},
               {"operator", report.op},
               {"reference", report.reference},
               {"operator_description", report.op_description},
               {"reference_description", report.reference_description},
               {"verdict", StateWord(report.State())},
               {"remarks", report.remarks}};
  for (const CaseResult& result : report.cases) {
    Json item = {{"name", result.name},
                 {"inputs", result.shapes},
                 {"verdict", StateWord(result.state)},
                 {"outputs", PairsJson(result.pairs)},
                 {"remarks", result.remarks}};
    if (!result.problem.ok()) item["message"] = std::string(result.problem.message());
    root["cases"].push_back(item);
  }
  if (report.break_point) {
    root["break"] = {{"input", report.break_point->input},
                     {"axis", report.break_point->axis},
                     {"channel", report.break_point->first},
                     {"text", report.break_point->text}};
  }
  if (report.gradients) {
    root["gradients"] = {{"passes", report.gradients->passes && report.gradients->problem.ok()},
                         {"pairs", PairsJson(report.gradients->pairs)},
                         {"hints", report.gradients->hints},
                         {"remarks", report.gradients->remarks}};
    if (!report.gradients->problem.ok()) {
      root["gradients"]["message"] = std::string(report.gradients->problem.message());
    }
  }
  // Names of files may hold bytes that are not UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ops_debug::analysis
