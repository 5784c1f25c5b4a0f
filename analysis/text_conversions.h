// The conversions of a report as a table: those that lose most first.
#pragma once

#include <vector>

#include "analysis/report.h"
#include "analysis/text_sheet.h"

namespace ops_debug::analysis {

// Nothing if there are none.
void WriteConversions(const std::vector<Conversion>& conversions, TextSheet& sheet);

}  // namespace ops_debug::analysis
