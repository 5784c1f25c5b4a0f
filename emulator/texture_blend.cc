// How textures are filtered. The CUDA C++ Programming Guide ("Linear Filtering") gives the formula
// and the weights' 8 fractional bits; the rest is what an H200 does, found by sweeps of weights and
// values on the device and held bit for bit by test/golden:
//
// Floats: texels are aligned to the one with the largest exponent and keep 4 bits more than their
// format has, the rest is cut off; their weighted sum is exact and rounded to the format once, to
// nearest, in the middle away from zero. Denormals count as 0.
//
// Integers read as [0, 1] or [-1, 1]: the weighted sum becomes a fraction of 65535 or 32767,
// rounded to nearest, which then becomes the nearest float.
#include "emulator/texture_blend.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

namespace ops_debug::emulator {
namespace {

// The NaN of 32 bits, and that of 16 as a float.
constexpr uint32_t kNan = 0x7fffffff;
constexpr uint32_t kHalfNan = 0x7fffe000;
constexpr int kGuardBits = 4;

// To nearest, in the middle to even.
uint32_t FloatToHalf(float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value != value) return 0x7fff;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7c00;
  int exponent;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 11, -24);
  const auto fraction = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -exponent)));
  // The leading bit of a normal fraction, and a carry, move on into the exponent.
  return sign | (fraction + (static_cast<uint32_t>(exponent + 24) << 10));
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f) {
    magnitude = std::bit_cast<float>(0x7f800000u | (fraction << 13));
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction | 0x400), static_cast<int>(exponent) - 25);
  }
  return sign != 0 ? -magnitude : magnitude;
}

uint32_t ToFormat(const TextureObject& texture, float value) {
  const TexelFormat format = texture.levels[0].format;
  const auto bits = std::bit_cast<uint32_t>(value);
  if (!texture.reads_float) {
    // The bits are taken for an integer, of which the low ones count.
    switch (format) {
      case TexelFormat::kU8:
        return bits & 0xff;
      case TexelFormat::kS8:
        return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(bits)));
      case TexelFormat::kU16:
        return bits & 0xffff;
      case TexelFormat::kS16:
        return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(bits)));
      case TexelFormat::kF16:
        return FloatToHalf(value);
      default:
        return bits;
    }
  }
  const auto scaled = [&](float low, float limit) {
    return static_cast<uint32_t>(
        static_cast<int32_t>(std::nearbyint(std::clamp(value, low, 1.0f) * limit)));
  };
  switch (format) {
    case TexelFormat::kU8:
      return scaled(0, 255);
    case TexelFormat::kS8:
      return scaled(-1, 127);
    case TexelFormat::kU16:
      return scaled(0, 65535);
    default:
      return scaled(-1, 32767);
  }
}

void Blend::Add(const std::array<uint32_t, 4>& texel, uint32_t weight) {
  texels_[count_] = texel;
  weights_[count_] = weight;
  ++count_;
}

std::array<uint32_t, 4> Blend::Result() const {
  const bool is_float = format_ == TexelFormat::kF16 || format_ == TexelFormat::kF32;
  std::array<uint32_t, 4> result;
  for (uint32_t c = 0; c < 4; ++c) result[c] = is_float ? FloatResult(c) : IntegerResult(c);
  return result;
}

uint32_t Blend::FloatResult(uint32_t channel) const {
  const bool is_half = format_ == TexelFormat::kF16;
  const int precision = is_half ? 11 : FLT_MANT_DIG;
  std::array<double, kMost> values;
  const uint32_t nan = is_half ? kHalfNan : kNan;
  bool all_negative = true;
  double largest = 0;
  double infinity = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const uint32_t raw = texels_[i][channel];
    const float value =
        is_half ? HalfToFloat(static_cast<uint16_t>(raw)) : std::bit_cast<float>(raw);
    values[i] = std::fabs(value) < FLT_MIN ? 0.0 : static_cast<double>(value);
    if (std::isinf(value)) infinity += value;
    all_negative = all_negative && std::signbit(value);
    if (value != value) return nan;
    largest = std::max(largest, std::fabs(values[i]));
  }
  if (infinity != infinity) return nan;
  if (infinity != 0) return std::bit_cast<uint32_t>(static_cast<float>(infinity));
  if (largest == 0) return all_negative ? 0x80000000u : 0;
  int exponent;
  std::frexp(largest, &exponent);
  exponent -= precision;
  int64_t sum = 0;
  for (uint32_t i = 0; i < count_; ++i)
    sum += static_cast<int64_t>(std::ldexp(values[i], kGuardBits - exponent)) * weights_[i];
  exponent -= kGuardBits + 8;
  auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  int excess = static_cast<int>(std::bit_width(magnitude)) - precision;
  if (is_half) excess = std::max(excess, -24 - exponent);
  if (excess > 0) {
    magnitude = (magnitude + (uint64_t{1} << (excess - 1))) >> excess;
    exponent += excess;
  }
  const double result = std::ldexp(static_cast<double>(magnitude), exponent);
  const float rounded = result < FLT_MIN ? 0.0f : static_cast<float>(result);
  return std::bit_cast<uint32_t>(sum < 0 ? -rounded : rounded);
}

uint32_t Blend::IntegerResult(uint32_t channel) const {
  int32_t sum = 0;
  for (uint32_t i = 0; i < count_; ++i)
    sum += static_cast<int32_t>(texels_[i][channel]) * static_cast<int32_t>(weights_[i]);
  float result;
  switch (format_) {
    case TexelFormat::kU8:
      result = static_cast<float>((sum * 257 + 128) >> 8) / 65535.0f;
      break;
    case TexelFormat::kU16:
      result = static_cast<float>((sum + 128) >> 8) / 65535.0f;
      break;
    case TexelFormat::kS8: {
      // 32767 / (127 * 256) of the sum, by way of a term that has lost its lowest bits.
      const int32_t term = (64 + (sum >> 8)) & ~15;
      result = static_cast<float>(std::max(sum + ((sum + term) >> 7), -32767)) / 32767.0f;
      break;
    }
    default:
      result = static_cast<float>(std::max((sum + 128) >> 8, -32767)) / 32767.0f;
      break;
  }
  return std::bit_cast<uint32_t>(result);
}

}  // namespace ops_debug::emulator
