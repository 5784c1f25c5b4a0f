// A DiffReport as JSON: {"schema": 1, "pairs": [...], "first_divergence": ...}; the fields are
// listed in README.md.
#pragma once

#include <string>

#include "analysis/compare/report_data.h"

namespace ops_debug::analysis {

// One line per pair, UTF-8, ends with a newline.
std::string DiffJson(const DiffReport& report);

}  // namespace ops_debug::analysis
