// One comparison as text for a terminal: the verdict first, then the whole, the place, the pattern,
// the worst elements, the distribution, and the tolerance that would pass. At most about 40 lines
// of at most about 120 columns.
#pragma once

#include <string>

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

struct TextOptions {
  bool colour = false;
  bool heat = false;  // the heat map, too, in characters: up to 32 more lines
};

// A comparison that passes is told in three lines. Names come from files: control characters are
// replaced. Ends with a newline.
std::string ComparisonText(const Comparison& comparison, const TextOptions& options = {});

// "pass", "FAIL", "SHAPE", "DTYPE", "EMPTY": one word for a table.
const char* OutcomeWord(Outcome outcome);

}  // namespace ops_debug::analysis
