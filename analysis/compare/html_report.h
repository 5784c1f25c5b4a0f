// A DiffReport as one HTML file that needs nothing beside itself: style, scripts, Chart.js and data
// are in it, and its Content-Security-Policy lets the browser load nothing else and run no other
// script, whatever the tensors are called.
#pragma once

#include <string>

#include "analysis/compare/report_data.h"

namespace ops_debug::analysis {

struct HtmlOptions {
  bool heatmap = true;  // with the spatial maps of the error, about 3 KB per pair that differs
};

// UTF-8, about 0.3 MB plus at most 20 KB per pair: heat maps are quantised to 8 bits on a
// logarithmic scale, channels down-sampled by maximum. Never fails: what a comparison lacks is not
// shown, bytes of names that are not UTF-8 become U+FFFD.
std::string HtmlReport(const DiffReport& report, const HtmlOptions& options);

}  // namespace ops_debug::analysis
