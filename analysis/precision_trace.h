// The whole trace of conversions as a file: one line per place, for other programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ops_debug::analysis {

// With the names of Conversion's fields; those that do not apply are absent. Numbers without a unit
// in their name are counts.
nlohmann::ordered_json ConversionJson(const Conversion& conversion);

// One such object per line.
std::string WriteTraceJson(const std::vector<Conversion>& conversions);
// The same as CSV (RFC 4180), with a header.
std::string WriteTraceCsv(const std::vector<Conversion>& conversions);

}  // namespace ops_debug::analysis
