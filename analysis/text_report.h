// The report for people: one block per finding, like a good compiler error, then what was and was
// not checked, then one closing line that scripts and eyes can find.
#pragma once

#include <string>

#include "analysis/report.h"

namespace ops_debug::analysis {

// With `colour`, ANSI colours. Reads the source files that findings name, to show the line. With
// `list_kernels`, a table of all kernels that were launched.
std::string WriteText(const Report& report, bool colour, bool list_kernels = false);

}  // namespace ops_debug::analysis
