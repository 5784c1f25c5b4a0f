// A pattern hint while it is still weighed against others, and the words that hints share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/compare/comparison.h"
#include "analysis/compare/error_sample.h"

namespace ops_debug::analysis {

// What a pattern says: where the error is, which element of the reference stands there instead, or
// how the value differs.
enum class PatternFamily : uint8_t { kPlace, kMap, kValue };

struct FoundPattern {
  PatternHint hint;
  PatternFamily family = PatternFamily::kPlace;
  int axis = kMemoryOrder;
  double explained = 0;      // share of the error (of the sample's, where it was sampled)
  double failing_share = 1;  // share of the failing elements that it speaks of
  bool everywhere = false;   // speaks of the whole tensor
};

// "98.2 %", rounded down; "0.0031 %" where that would be 0.
std::string PercentText(double share);
// Six significant digits; "inf", "-inf", "nan".
std::string NumberText(double value);
std::string NumberText(std::complex<double> value);
// "(0, 3, 17)"
std::string IndexText(const std::vector<int64_t>& index);
// "dim 1", or "memory order"
std::string AxisText(int axis);

}  // namespace ops_debug::analysis
