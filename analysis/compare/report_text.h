// Two sequences of tensors held against each other, as text for a terminal.
#pragma once

#include <string>

#include "analysis/compare/comparison_text.h"
#include "analysis/compare/report_data.h"

namespace ops_debug::analysis {

// The verdict with the first divergence, a table of the pairs (of more than 40, those around the
// first divergence and the worst ones), remarks, and in full the first pair that diverges and the
// worst one. Ends with a newline.
std::string DiffText(const DiffReport& report, const TextOptions& options = {});

}  // namespace ops_debug::analysis
