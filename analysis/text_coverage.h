// The part of the text report behind the findings: what ran, what was checked and what was not.
#pragma once

#include "analysis/report.h"
#include "analysis/text_sheet.h"

namespace ops_debug::analysis {

// With `list_kernels`, a table of all kernels that were launched.
void WriteCoverage(const Report& report, bool list_kernels, TextSheet& sheet);

// Which files hid how many findings, and which entries of the user's files matched nothing.
void WriteSuppressed(const Report& report, TextSheet& sheet);

}  // namespace ops_debug::analysis
