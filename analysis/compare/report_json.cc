#include "analysis/compare/report_json.h"

#include <nlohmann/json.hpp>

#include "analysis/compare/comparison_json.h"

namespace ops_debug::analysis {

std::string DiffJson(const DiffReport& report) {
  using Json = nlohmann::ordered_json;
  const auto line = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  Json head;
  head["schema"] = 1;
  head["title"] = report.title;
  head["candidate"] = report.candidate;
  head["reference"] = report.reference;
  head["passes"] = report.passes;
  head["first_divergence"] =
      report.first_divergence >= 0 ? Json(report.first_divergence) : Json(nullptr);
  head["remarks"] = report.remarks;
  std::string text = "{\n";
  for (const auto& [key, value] : head.items())
    text += "  " + line(key) + ": " + line(value) + ",\n";
  // Pair by pair: one that is written is not kept as a tree.
  text += "  \"pairs\": [";
  const char* separator = "\n    ";
  for (const ComparedPair& pair : report.pairs) {
    Json entry;
    entry["tag"] = pair.tag;
    entry["candidate"] = pair.candidate;
    entry["reference"] = pair.reference;
    if (pair.candidate.empty() || pair.reference.empty()) {
      entry["missing"] = pair.candidate.empty() ? "candidate" : "reference";
    } else {
      entry["comparison"] = ComparisonJson(pair.comparison);
    }
    text += separator + line(entry);
    separator = ",\n    ";
  }
  return text + (report.pairs.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace ops_debug::analysis
