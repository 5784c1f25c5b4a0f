// Shapes of buffers: "1024x1024".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

// Elements per dimension, the last one contiguous; all positive.
using Shape = std::vector<int64_t>;

std::string ToString(const Shape& shape);
absl::StatusOr<Shape> ParseShape(std::string_view text);
// The largest integer if the product does not fit.
int64_t ElementCount(const Shape& shape);

}  // namespace ops_debug::runner
