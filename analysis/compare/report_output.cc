#include "analysis/compare/report_output.h"

#include "analysis/compare/html_report.h"
#include "analysis/compare/report_json.h"
#include "analysis/compare/report_text.h"

namespace ops_debug::analysis {

absl::Status CheckChoice(const ReportChoice& choice) {
  if (choice.format != "text" && choice.format != "json" && choice.format != "html") {
    return absl::InvalidArgumentError("--format takes text, json or html, not \"" + choice.format +
                                      "\"");
  }
  if (choice.format == "html" && choice.output.empty()) {
    return absl::InvalidArgumentError("--format html needs --output FILE");
  }
  return absl::OkStatus();
}

std::string RenderReport(const DiffReport& report, const ReportChoice& choice, bool colour) {
  if (choice.format == "json") return DiffJson(report);
  if (choice.format == "html") return HtmlReport(report, {.heatmap = choice.heatmap});
  return DiffText(report, {.colour = colour, .heat = choice.heatmap});
}

}  // namespace ops_debug::analysis
