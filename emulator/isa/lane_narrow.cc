// cvt to the narrow floating-point formats: f16 and bf16 with every rounding, e4m3 and e5m2, tf32;
// and cvt.pack. What hardware does with NaN operands was measured (test/golden): f32 operands give
// the canonical NaN, f64 operands keep the upper bits of their payload.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_math.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

// Magnitude bits of a number (not NaN) in a format with `Fraction` and `Exponent` bits, as if
// exponents had no upper limit: fraction and exponent field are one integer, so that a carry out of
// the fraction steps the exponent.
template <int Fraction, int Exponent>
inline uint64_t RoundBits(double x, Rounding mode) {
  constexpr int kSmallest = 2 - (1 << (Exponent - 1));  // exponent of the smallest normal number
  const auto bits = BitCast<uint64_t>(x);
  const bool negative = (bits >> 63) != 0;
  const auto field = static_cast<int>((bits >> 52) & 0x7ff);
  const int exponent = (field == 0 ? 1 : field) - 1023;
  const uint64_t significand = (bits & 0xfffffffffffffull) | (field == 0 ? 0 : 0x10000000000000ull);
  const int below = exponent < kSmallest ? kSmallest - exponent : 0;
  const int drop = 52 - Fraction + (below > 11 + Fraction ? 11 + Fraction : below);
  const uint64_t kept = significand >> drop;
  const uint64_t rest = significand & ((1ull << drop) - 1);
  const uint64_t half = 1ull << (drop - 1);
  bool up = false;
  if (mode == Rounding::kNearest) up = rest > half || (rest == half && (kept & 1) != 0);
  if (mode == Rounding::kUp) up = !negative && rest != 0;
  if (mode == Rounding::kDown) up = negative && rest != 0;
  const int step = exponent < kSmallest ? 0 : exponent - kSmallest;
  return (static_cast<uint64_t>(step) << Fraction) + kept + (up ? 1 : 0);
}

struct HalfFormat {
  static constexpr int kFraction = 10, kExponent = 5;
};
struct BfloatFormat {
  static constexpr int kFraction = 7, kExponent = 8;
};

template <class Format>
inline uint16_t RoundTo(double x, Rounding mode) {
  constexpr uint64_t kInfinity = ((1ull << Format::kExponent) - 1) << Format::kFraction;
  const bool negative = (BitCast<uint64_t>(x) >> 63) != 0;
  const uint64_t sign = negative ? 0x8000 : 0;
  if (x - x != 0) return static_cast<uint16_t>(sign | kInfinity);
  uint64_t magnitude = RoundBits<Format::kFraction, Format::kExponent>(x, mode);
  if (magnitude >= kInfinity) {
    const bool outwards =
        mode == Rounding::kNearest || mode == (negative ? Rounding::kDown : Rounding::kUp);
    magnitude = outwards ? kInfinity : kInfinity - 1;
  }
  return static_cast<uint16_t>(sign | magnitude);
}

// The NaN that an f64 NaN becomes: quiet, with its sign and the payload's upper bits.
template <class Format>
inline uint16_t NanOfDouble(double x) {
  const auto bits = BitCast<uint64_t>(x);
  constexpr uint64_t kExponent = ((1ull << Format::kExponent) - 1) << Format::kFraction;
  const uint64_t payload = (bits & 0xfffffffffffffull) >> (52 - Format::kFraction);
  return static_cast<uint16_t>(((bits >> 48) & 0x8000) | kExponent |
                               (1ull << (Format::kFraction - 1)) | payload);
}

template <class Format, Rounding Mode>
void RegisterDirected(LaneRegistry& r, const char* name) {
  r.Alu(name, "f64", Unary<uint16_t, double>([](double x) {
          return x != x ? NanOfDouble<Format>(x) : RoundTo<Format>(x, Mode);
        }));
  r.Alu(name, "f32", Unary<uint16_t, float>([](float x) {
          return x != x ? static_cast<uint16_t>(0x7fff)
                        : RoundTo<Format>(static_cast<double>(x), Mode);
        }));
}

// e4m3 has no infinity: 0x7f is its NaN and 0x7e (448) its greatest number.
struct E4m3 {
  static constexpr int kFraction = 3, kExponent = 4;
  static constexpr uint64_t kGreatest = 0x7e;
  static uint16_t ToHalf(uint32_t byte) {
    const uint32_t magnitude = byte & 0x7f;
    const uint32_t sign = (byte & 0x80) << 8;
    if (magnitude == 0x7f) return 0x7fff;
    if (magnitude >= 8) return static_cast<uint16_t>(sign | ((magnitude << 7) + (8u << 10)));
    const uint32_t subnormal = FloatToHalf(static_cast<float>(magnitude) * 0x1p-9f);
    return static_cast<uint16_t>(sign | subnormal);
  }
};
// e5m2 is the upper half of f16; conversions saturate at 57344.
struct E5m2 {
  static constexpr int kFraction = 2, kExponent = 5;
  static constexpr uint64_t kGreatest = 0x7b;
  static uint16_t ToHalf(uint32_t byte) {
    return static_cast<uint16_t>((byte & 0x7f) > 0x7c ? 0x7fffu : byte << 8);
  }
};

template <class Format>
inline uint32_t ToByte(float x) {
  if (x != x) return 0x7f;
  const uint32_t sign = (BitCast<uint32_t>(x) >> 24) & 0x80;
  uint64_t magnitude = Format::kGreatest;
  if (x - x == 0) {
    magnitude =
        RoundBits<Format::kFraction, Format::kExponent>(static_cast<double>(x), Rounding::kNearest);
    if (magnitude > Format::kGreatest) magnitude = Format::kGreatest;
  }
  return sign | static_cast<uint32_t>(magnitude);
}

template <class Format>
void RegisterEight(LaneRegistry& r, const char* to_name, const char* type) {
  // The first operand goes to the upper byte.
  r.Alu(to_name, "f32", Binary<uint16_t, float>([](float high, float low) {
          return (ToByte<Format>(high) << 8) | ToByte<Format>(low);
        }));
  r.Alu(to_name, "f16x2", Unary<uint16_t, uint32_t>([](uint32_t x) {
          return (ToByte<Format>(HalfToFloat(static_cast<uint16_t>(x >> 16))) << 8) |
                 ToByte<Format>(HalfToFloat(static_cast<uint16_t>(x)));
        }));
  r.Alu("cvt.f16x2", type, Unary<uint32_t, uint16_t>([](uint16_t x) {
          return (static_cast<uint32_t>(Format::ToHalf(x >> 8)) << 16) | Format::ToHalf(x & 0xff);
        }));
}

// Exact, or the neighbour with an odd last bit: a second rounding is then as good as a single one.
template <class I>
inline double IntegerToDoubleOdd(I x) {
  const bool negative = x < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  if ((magnitude >> 53) != 0) {
    const int drop = 11 - __builtin_clzll(magnitude);
    const bool inexact = (magnitude & ((1ull << drop) - 1)) != 0;
    magnitude = ((magnitude >> drop) | (inexact ? 1 : 0)) << drop;
  }
  const auto result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

void RegisterTf32(LaneRegistry& r) {
  // tf32 keeps 10 fraction bits in an f32. Rounding to nearest away leaves NaNs as they are.
  r.Alu("cvt.rna.tf32", "f32", Unary<uint32_t>([](uint32_t x) {
          return ((x & 0x7fffffffu) > 0x7f800000u ? x : x + 0x1000u) & ~0x1fffu;
        }));
  r.Alu("cvt.tf32", "f32", Unary<uint32_t>([](uint32_t x) {
          return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u
                                                 : (x + 0xfffu + ((x >> 13) & 1)) & ~0x1fffu;
        }));
  r.Alu("cvt.rz.tf32", "f32", Unary<uint32_t>([](uint32_t x) {
          return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : x & ~0x1fffu;
        }));
  r.Alu("relu", "tf32", Unary<uint32_t>([](uint32_t x) {
          const bool is_nan = (x & 0x7fffffffu) > 0x7f800000u;
          return is_nan || (x >> 31) == 0 ? x : 0u;
        }));
  // .rna.satfinite also steps NaNs down.
  r.Alu("finite", "tf32", Unary<uint32_t>([](uint32_t x) {
          return (x & 0x7fffffffu) >= 0x7f800000u ? x - 0x2000u : x;
        }));
}

// cvt.pack: a and b saturated to `immediate` bits (bit 8: signed), beside each other under c.
inline uint32_t PackSaturated(int32_t a, int32_t b, uint32_t c, uint64_t immediate) {
  const auto bits = static_cast<uint32_t>(immediate & 0xff);
  const bool is_signed = (immediate & 0x100) != 0;
  const int32_t greatest = static_cast<int32_t>((1u << (is_signed ? bits - 1 : bits)) - 1);
  const int32_t least = is_signed ? -greatest - 1 : 0;
  const auto saturate = [&](int32_t x) {
    const int32_t clamped = x < least ? least : x > greatest ? greatest : x;
    return static_cast<uint32_t>(clamped) & ((1u << bits) - 1);
  };
  const uint32_t pair = (saturate(a) << bits) | saturate(b);
  return bits == 16 ? pair : pair | (c << (2 * bits));
}

}  // namespace

void RegisterNarrowLanes(LaneRegistry& r) {
  r.Alu("cvt.f16", "f64", Unary<uint16_t, double>([](double x) {
          return x != x ? NanOfDouble<HalfFormat>(x) : FloatToHalf(DoubleToFloatOdd(x));
        }));
  r.Alu("cvt.bf16", "f64", Unary<uint16_t, double>([](double x) {
          return x != x ? NanOfDouble<BfloatFormat>(x) : FloatToBfloat(DoubleToFloatOdd(x));
        }));
  RegisterDirected<HalfFormat, Rounding::kZero>(r, "cvt.rz.f16");
  RegisterDirected<HalfFormat, Rounding::kDown>(r, "cvt.rm.f16");
  RegisterDirected<HalfFormat, Rounding::kUp>(r, "cvt.rp.f16");
  RegisterDirected<BfloatFormat, Rounding::kZero>(r, "cvt.rz.bf16");
  RegisterDirected<BfloatFormat, Rounding::kDown>(r, "cvt.rm.bf16");
  RegisterDirected<BfloatFormat, Rounding::kUp>(r, "cvt.rp.bf16");
  RegisterEight<E4m3>(r, "cvt.e4m3x2", "e4m3x2");
  RegisterEight<E5m2>(r, "cvt.e5m2x2", "e5m2x2");
  r.Alu("cvt.odd.f64", "s64",
        Unary<double, int64_t>([](int64_t x) { return IntegerToDoubleOdd(x); }));
  r.Alu("cvt.odd.f64", "u64",
        Unary<double, uint64_t>([](uint64_t x) { return IntegerToDoubleOdd(x); }));
  // max(x, 0); a NaN stays.
  r.Alu("relu", "f32", Unary<float>([](float x) { return x != x || x > 0.0f ? x : 0.0f; }));
  // .satfinite: infinity becomes the greatest number.
  r.Alu("finite", "f16", Unary<uint16_t>([](uint16_t x) {
          return static_cast<uint16_t>((x & 0x7fff) == 0x7c00 ? x - 1 : x);
        }));
  r.Alu("finite", "bf16", Unary<uint16_t>([](uint16_t x) {
          return static_cast<uint16_t>((x & 0x7fff) == 0x7f80 ? x - 1 : x);
        }));
  r.Alu("pack.saturated", "b32",
        WithImmediate<uint32_t, int32_t, int32_t, uint32_t>(
            [](int32_t a, int32_t b, uint32_t c, uint64_t immediate) {
              return PackSaturated(a, b, c, immediate);
            }));
  RegisterTf32(r);
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
