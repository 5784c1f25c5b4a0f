// What a wrong gradient looks like: mass at another place, values that nothing wrote, one channel's
// gradient in its neighbour.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ops_debug::analysis {

struct GradientValues {
  std::string input;
  std::vector<int64_t> shape;
  std::vector<double> candidate, expected;
};

// NaN or infinities where the truth is finite: rows that were never written, and a reduction that
// has read them. Looks at all gradients together: the rows of one explain the other.
std::vector<std::string> NonFiniteHints(const std::vector<GradientValues>& gradients);

// The sum is right and the places are not: an index map, not a scale. Names the displacement if one
// explains it.
std::optional<std::string> DisplacedHint(const GradientValues& gradient);

// A constant factor.
std::optional<std::string> FactorHint(const GradientValues& gradient);

// Slices of axis `axis` of the gradient that receive something from slices of the outputs that
// cannot reach them. `received[c][j]` is what slice j gets while only slice c of the cotangent is
// not zero, `possible[c][j]` the truth, `scale[c][j]` how large a number counts.
struct Crosstalk {
  std::vector<std::vector<double>> received, possible;
  double scale = 0;
};
std::optional<std::string> CrosstalkHint(const std::string& input, const Crosstalk& crosstalk);

}  // namespace ops_debug::analysis
