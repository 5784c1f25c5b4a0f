// Parsing and printing of shapes, with overflow checks.
#include "runner/shape.h"

#include <charconv>
#include <limits>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {

std::string ToString(const Shape& shape) { return StrJoin(shape, "x"); }

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (__builtin_mul_overflow(count, dimension, &count))
      return std::numeric_limits<int64_t>::max();
  }
  return count;
}

absl::StatusOr<Shape> ParseShape(std::string_view text) {
  Shape shape;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (true) {
    int64_t dimension = 0;
    const auto [behind, error] = std::from_chars(at, end, dimension);
    if (error != std::errc() || dimension < 1) break;
    shape.push_back(dimension);
    if (behind == end) return shape;
    if (*behind != 'x' && *behind != ',') break;
    at = behind + 1;
  }
  return absl::InvalidArgumentError(StrCat(
      "'", text, "' is no shape\n  hint: positive numbers joined by 'x', for example 1024x1024"));
}

}  // namespace ops_debug::runner
