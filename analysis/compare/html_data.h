// The data of the HTML report as compact JSON; analysis/compare/html/data.js is the reader. Plain
// numbers have four significant digits (values of elements nine); NaN and infinities are strings.
#pragma once

#include <string>
#include <vector>

#include "analysis/compare/report_data.h"

namespace ops_debug::analysis {

// Entries that one chart of channels or of a rank-1 factor has at most; more are binned by maximum.
constexpr size_t kMostBars = 96;
// Rows of a table of worst elements, and rank-1 terms.
constexpr size_t kMostElements = 50, kMostTerms = 3;

// One byte per value, in base64: 0: exactly 0; 255: infinity (or NaN); 1..254: the logarithm from
// `low` to `high`. What is below `low` becomes 1.
struct QuantisedValues {
  double low = 0, high = 0;  // the positive finite values' ends; 0: there is none
  std::string base64;
};
// Values are magnitudes. `low` is at least high / kQuantisedRange, so that a step is 11 % at most.
constexpr double kQuantisedRange = 1e12;
QuantisedValues Quantise(const std::vector<double>& values);

// Contains no '<', '>' or '&' and so nothing that HTML could read as markup.
std::string HtmlData(const DiffReport& report, bool heatmap);

}  // namespace ops_debug::analysis
