// The report as JSON, schema 1 (design.md, "Findings: one vocabulary"). Fields that do not apply
// are absent. Addresses are strings ("0x7f..."), because JSON readers lose the low bits of 64-bit
// numbers.
#pragma once

#include <string>

#include "analysis/report.h"

namespace ops_debug::analysis {

// Ends with a newline.
std::string WriteJson(const Report& report);

}  // namespace ops_debug::analysis
