// A DiffReport in the format and at the place that the user asks for.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/compare/report_data.h"
#include "analysis/report_file.h"

namespace ops_debug::analysis {

struct ReportChoice {
  std::string format = "text";  // json, html
  std::string output;           // a file; empty or "-": standard output
  bool heatmap = false;
};

// An error says which flag is wrong and what it takes.
absl::Status CheckChoice(const ReportChoice& choice);

// `colour`: text for a terminal.
std::string RenderReport(const DiffReport& report, const ReportChoice& choice, bool colour);

}  // namespace ops_debug::analysis
