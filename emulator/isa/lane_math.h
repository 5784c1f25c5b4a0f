// Scalar building blocks of the floating-point lanes: flushing, canonical NaNs, IEEE minimum and
// maximum, half-precision conversion without hardware support. Branch-free where it counts, so that
// the loops around them vectorise.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif
#include <xmmintrin.h>

#include "emulator/isa/lane_loops.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {

// Rounding control of MXCSR (Intel SDM 1, 10.2.3), set for the time of one loop.
enum class Rounding : unsigned { kNearest = 0, kDown = 0x2000, kUp = 0x4000, kZero = 0x6000 };

class RoundingScope {
 public:
  explicit RoundingScope(Rounding mode) : saved_(_mm_getcsr()) {
    _mm_setcsr((saved_ & ~0x6000u) | static_cast<unsigned>(mode));
    asm volatile("" ::: "memory");  // no operand may be read before the mode is set
  }
  ~RoundingScope() {
    asm volatile("" ::: "memory");
    _mm_setcsr(saved_);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  unsigned saved_;
};

// A NaN that an f32 instruction produces is always this one on a GPU.
inline float Canonical(float x) { return x != x ? BitCast<float>(0x7fffffffu) : x; }

inline float Flush(float x) {
  const auto bits = BitCast<uint32_t>(x);
  return BitCast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
inline double Flush(double x) { return x; }

inline float Saturate(float x) {
  // NaN becomes +0.
  const float low = x > 0.0f ? x : 0.0f;
  return low < 1.0f ? low : 1.0f;
}
inline double Saturate(double x) {
  const double low = x > 0.0 ? x : 0.0;
  return low < 1.0 ? low : 1.0;
}

template <class F>
struct FloatBits;
template <>
struct FloatBits<float> {
  using U = uint32_t;
  static constexpr U kSign = 0x80000000u;
};
template <>
struct FloatBits<double> {
  using U = uint64_t;
  static constexpr U kSign = 0x8000000000000000ull;
};

// f64 instructions keep the payload of a NaN operand and make it quiet.
inline double Quiet(double x) {
  return BitCast<double>(BitCast<uint64_t>(x) | 0x0008000000000000ull);
}

// A NaN operand loses against a number; -0 is less than +0.
template <class F>
inline F Minimum(F x, F y) {
  using U = typename FloatBits<F>::U;
  F r = x < y ? x : y;
  r = x == y ? BitCast<F>(static_cast<U>(BitCast<U>(x) | BitCast<U>(y))) : r;
  r = x != x ? y : r;
  return y != y ? x : r;
}
template <class F>
inline F Maximum(F x, F y) {
  using U = typename FloatBits<F>::U;
  F r = x > y ? x : y;
  r = x == y ? BitCast<F>(static_cast<U>(BitCast<U>(x) & BitCast<U>(y))) : r;
  r = x != x ? y : r;
  return y != y ? x : r;
}

// ---- half precision: 1 sign, 5 exponent, 10 fraction bits ----

inline float HalfToFloat(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude + (224u << 23);  // infinity and NaN
  // Subnormal: let the subtraction of 2^-14 normalise.
  const float scaled = BitCast<float>(magnitude + (113u << 23)) - BitCast<float>(113u << 23);
  uint32_t bits = exponent == 0x0f800000u ? special : normal;
  bits = exponent == 0 ? BitCast<uint32_t>(scaled) : bits;
  return BitCast<float>(bits | (static_cast<uint32_t>(h & 0x8000) << 16));
}

// Round to nearest even.
inline uint16_t FloatToHalf(float f) {
  const auto all = BitCast<uint32_t>(f);
  const uint32_t sign = (all >> 16) & 0x8000u;
  const uint32_t bits = all & 0x7fffffffu;
  // Subnormal results: adding 0.5 moves the 10 kept fraction bits to the bottom, rounded by the
  // addition.
  const uint32_t subnormal = BitCast<uint32_t>(BitCast<float>(bits) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (bits + 0xc8000fffu + ((bits >> 13) & 1)) >> 13;
  uint32_t h = bits < 0x38800000u ? subnormal : normal;
  h = bits >= 0x47800000u ? 0x7c00u : h;
  h = bits > 0x7f800000u ? 0x7fffu : h | sign;
  return static_cast<uint16_t>(h);
}

inline uint16_t FlushHalf(uint16_t h) { return (h & 0x7c00) == 0 ? h & 0x8000 : h; }

// ---- bfloat16: the upper half of an f32 ----

inline float BfloatToFloat(uint16_t h) { return BitCast<float>(static_cast<uint32_t>(h) << 16); }

inline uint16_t FloatToBfloat(float f) {
  const auto bits = BitCast<uint32_t>(f);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

// Rounds to odd: exact, or the neighbour with an odd last bit. A second rounding to fewer bits is
// then as good as a single one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008).
inline float DoubleToFloatOdd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  auto bits = BitCast<uint32_t>(nearest);
  if ((bits & 1) != 0) return nearest;
  const bool rounded_away = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  return BitCast<float>(rounded_away ? bits - 1 : bits + 1);
}

// a * b + c in double, rounded to odd, where a, b and c are at most 11 bits wide each (the product
// is exact).
inline double MultiplyAddOdd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  if (error == 0 || error != error) return sum;
  const auto bits = BitCast<uint64_t>(sum);
  if ((bits & 1) != 0) return sum;
  const bool away = (error > 0) == (sum > 0);  // the exact value lies further from zero
  return BitCast<double>(away ? bits + 1 : bits - 1);
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
