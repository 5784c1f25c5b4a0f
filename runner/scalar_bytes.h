// Scalars as the bytes that a launch passes, and the conversion to 16-bit floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/element.h"

namespace ops_debug::runner {

// Round to nearest, ties to even; NaN stays NaN (IEEE 754-2019, 5.4.2).
uint16_t FloatToHalf(float value);
uint16_t FloatToBfloat16(float value);

// Error: the value does not fit the type.
absl::StatusOr<std::vector<std::byte>> IntegerBytes(ScalarType type, int64_t value);

// "1e-5" for a floating type, "true" or "false" for bool, a number for integers.
absl::StatusOr<std::vector<std::byte>> ScalarBytes(ScalarType type, std::string_view text);

// "zeros" or "hex:00ff..." of exactly `size_bytes` bytes.
absl::StatusOr<std::vector<std::byte>> OpaqueBytes(std::string_view text, uint32_t size_bytes);

}  // namespace ops_debug::runner
