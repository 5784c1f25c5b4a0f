// Text to the bytes of a scalar parameter, with range checks; half formats are rounded from float
// by integer arithmetic on its bits.
#include "runner/scalar_bytes.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

template <class T>
std::vector<std::byte> BytesOf(T value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
absl::StatusOr<std::vector<std::byte>> Fitting(int64_t value) {
  const T narrow = static_cast<T>(value);
  if (static_cast<int64_t>(narrow) != value || (std::is_unsigned_v<T> && value < 0)) {
    return absl::InvalidArgumentError(
        StrCat(value, " does not fit into its ", 8 * sizeof(T), "-bit type"));
  }
  return BytesOf(narrow);
}

}  // namespace

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f)
    return sign | 0x7c00;  // beyond the middle between 65504 and the next step
  if (magnitude < 0x1p-14f) {
    // Subnormal: a multiple of 2^-24. nearbyint rounds to even in the default mode.
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  const uint32_t absolute = bits & 0x7fffffff;
  // Exponent bias 127 -> 15; rounding may carry into the exponent, which is then right as well.
  const uint32_t rebased = absolute - (112u << 23);
  const uint32_t rounded = rebased + 0xfff + (rebased >> 13 & 1);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

absl::StatusOr<std::vector<std::byte>> IntegerBytes(ScalarType type, int64_t value) {
  switch (type) {
    case ScalarType::kS8:
      return Fitting<int8_t>(value);
    case ScalarType::kU8:
      return Fitting<uint8_t>(value);
    case ScalarType::kS16:
      return Fitting<int16_t>(value);
    case ScalarType::kU16:
      return Fitting<uint16_t>(value);
    case ScalarType::kS32:
      return Fitting<int32_t>(value);
    case ScalarType::kU32:
      return Fitting<uint32_t>(value);
    case ScalarType::kS64:
      return Fitting<int64_t>(value);
    case ScalarType::kU64:
      return Fitting<uint64_t>(value);
    default:
      return absl::InvalidArgumentError(StrCat(Name(type), " is not an integer type"));
  }
}

absl::StatusOr<std::vector<std::byte>> ScalarBytes(ScalarType type, std::string_view text) {
  if (type == ScalarType::kBool) {
    bool value = false;
    if (text == "true" || text == "1") {
      value = true;
    } else if (text != "false" && text != "0") {
      return absl::InvalidArgumentError(StrCat("'", text, "' is neither true nor false"));
    }
    return BytesOf(static_cast<uint8_t>(value));
  }
  if (!IsFloating(type)) {
    int64_t value = 0;
    if (!ParseNumber(text, &value)) {
      return absl::InvalidArgumentError(StrCat("'", text, "' is not a whole number"));
    }
    return IntegerBytes(type, value);
  }
  double value = 0;
  if (!ParseNumber(text, &value)) {
    return absl::InvalidArgumentError(StrCat("'", text, "' is not a number"));
  }
  switch (type) {
    case ScalarType::kF16:
      return BytesOf(FloatToHalf(static_cast<float>(value)));
    case ScalarType::kBf16:
      return BytesOf(FloatToBfloat16(static_cast<float>(value)));
    case ScalarType::kF32:
      return BytesOf(static_cast<float>(value));
    default:
      return BytesOf(value);
  }
}

absl::StatusOr<std::vector<std::byte>> OpaqueBytes(std::string_view text, uint32_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes, std::byte{0});
  if (text == "zeros") return bytes;
  if (!text.starts_with("hex:")) {
    return absl::InvalidArgumentError(StrCat("'", text, "' is neither zeros nor hex:BYTES"));
  }
  const std::string_view digits = text.substr(4);
  if (digits.size() != 2 * static_cast<size_t>(size_bytes)) {
    return absl::InvalidArgumentError(StrCat("hex: needs ", 2 * size_bytes,
                                             " digits for the parameter's ", size_bytes,
                                             " bytes, not ", digits.size()));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string_view pair = digits.substr(2 * i, 2);
    uint8_t value = 0;
    const auto [behind, error] = std::from_chars(pair.begin(), pair.end(), value, 16);
    if (error != std::errc() || behind != pair.end()) {
      return absl::InvalidArgumentError(StrCat("'", pair, "' is not hexadecimal"));
    }
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

}  // namespace ops_debug::runner
