// The inner loops of matrix instructions (matrix_kernels.h). Operands become doubles, which hold
// every product of the narrow formats exactly; scaled to the step's fixed-point grid, the
// conversion to an integer is the cut that the hardware makes.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_loops.h"
#include "emulator/isa/matrix_kernels.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

constexpr uint32_t kGroup = 8;  // columns at once
// Vectors without alignment, so that they can lie anywhere in the arrays.
using Doubles = double __attribute__((vector_size(64), aligned(8)));
using Integers = int32_t __attribute__((vector_size(32), aligned(4)));
using Unsigned = uint32_t __attribute__((vector_size(32), aligned(4)));
using Longs = int64_t __attribute__((vector_size(64), aligned(8)));

constexpr int64_t kDoubleBias = 1023;
constexpr int kDoubleFraction = 52;

inline __attribute__((always_inline)) double PowerOfTwo(int64_t exponent) {
  return BitCast<double>((kDoubleBias + exponent) << kDoubleFraction);
}

// A format with `Exponent` and `Fraction` bits, read from the upper bits of bits >> Skip.
template <int Exponent, int Fraction, int Skip, bool kHasInfinity>
bool Decode(const uint32_t* bits, double* value, int32_t* exponent, size_t count) {
  constexpr uint32_t kBias = (1u << (Exponent - 1)) - 1;
  constexpr uint32_t kTop = (1u << Exponent) - 1;
  constexpr uint32_t kFractionMask = (1u << Fraction) - 1;
  constexpr uint32_t kMagnitudeMask = (1u << (Exponent + Fraction)) - 1;
  uint32_t any_special = 0;
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const uint32_t x = bits[i] >> Skip;
    const uint32_t magnitude = x & kMagnitudeMask;
    const uint32_t field = magnitude >> Fraction;
    const uint32_t fraction = magnitude & kFractionMask;
    // Subnormals have the exponent of the smallest normal number and no leading one.
    const int32_t unbiased =
        static_cast<int32_t>(field == 0 ? 1 : field) - static_cast<int32_t>(kBias);
    const auto significand = static_cast<int32_t>(fraction | (field == 0 ? 0u : 1u << Fraction));
    const bool is_special =
        kHasInfinity ? field == kTop : magnitude == kMagnitudeMask;  // e4m3 has one NaN only
    const double finite = static_cast<double>(significand) * PowerOfTwo(unbiased - Fraction);
    const uint64_t special =
        kHasInfinity && fraction == 0 ? 0x7ff0000000000000ull : 0x7ff8000000000000ull;
    const uint64_t sign = static_cast<uint64_t>(x >> (Exponent + Fraction)) << 63;
    value[i] = BitCast<double>((is_special ? special : BitCast<uint64_t>(finite)) | sign);
    exponent[i] = magnitude == 0 || is_special ? kNoExponent : unbiased;
    any_special |= is_special ? 1u : 0u;
  }
  return any_special != 0;
}

void TruncateToSingle(const double* sum, uint32_t* bits, size_t count) {
  constexpr double kLimit = 0x1p128;
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const double x = sum[i];
    const double magnitude = x < 0 ? -x : x;
    const auto nearest = static_cast<float>(x);
    const float nearest_magnitude = nearest < 0 ? -nearest : nearest;
    auto result = BitCast<uint32_t>(nearest);
    const bool went_up = static_cast<double>(nearest_magnitude) > magnitude && magnitude < kLimit;
    result -= went_up ? 1u : 0u;
    result = (result & 0x7fffffffu) == 0 ? 0u : result;
    bits[i] = x != x ? 0x7fffffffu : result;
  }
}

// Adding and subtracting 1.5 * 2^52 units of the last place rounds to that place.
void NearestHalf(const double* sum, uint32_t* bits, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const double x = sum[i];
    const uint64_t raw = BitCast<uint64_t>(x);
    const uint64_t sign = raw >> 63;
    const double magnitude = BitCast<double>(raw & ~(1ull << 63));
    int64_t exponent = static_cast<int64_t>((raw >> kDoubleFraction) & 0x7ff) - kDoubleBias;
    exponent = exponent < -14 ? -14 : exponent > 16 ? 16 : exponent;
    const double unit = PowerOfTwo(exponent - 10);
    const double magic = 0x1.8p52 * unit;
    const double rounded = (magnitude + magic) - magic;
    // In units of the last place of this exponent: 0 .. 2048, where 2048 is the next power of two.
    const auto units = static_cast<int64_t>(rounded * PowerOfTwo(10 - exponent));
    int64_t half = ((exponent + 14) << 10) + units;
    half = rounded >= 65520.0 ? 0x7c00 : half;
    half |= static_cast<int64_t>(sign << 15);
    bits[i] = static_cast<uint32_t>(x != x ? 0x7fff : half);
  }
}

template <bool kSparse>
void FusedSteps(const FusedDot& dot) {
  const uint32_t columns = dot.columns;
  for (uint32_t m = 0; m < dot.rows; ++m) {
    const double* const a = dot.a + static_cast<size_t>(m) * dot.a_stride;
    const int32_t* const a_exponent = dot.a_exponent + static_cast<size_t>(m) * dot.a_stride;
    const uint8_t* const b_row =
        kSparse ? dot.b_row + static_cast<size_t>(m) * dot.a_stride : nullptr;
    for (uint32_t n = 0; n < columns; n += kGroup) {
      const size_t at = static_cast<size_t>(m) * columns + n;
      Integers top = *reinterpret_cast<const Integers*>(dot.c_exponent + at);
      for (uint32_t k = 0; k < dot.depth; ++k) {
        const size_t row = kSparse ? b_row[k] : k;
        const Integers e =
            *reinterpret_cast<const Integers*>(dot.b_exponent + row * columns + n) + a_exponent[k];
        top = e > top ? e : top;
      }
      const Integers lowest = Integers{} - 600;  // all terms are zero
      top = top < lowest ? lowest : top;
      const Longs shift =
          __builtin_convertvector(top, Longs) - static_cast<int64_t>(dot.fraction_bits);
      const Doubles scale = reinterpret_cast<Doubles>((kDoubleBias - shift) << kDoubleFraction);
      const Doubles unit = reinterpret_cast<Doubles>((kDoubleBias + shift) << kDoubleFraction);
      // Unsigned, because infinities and NaNs become integers that overflow.
      auto sum = reinterpret_cast<Unsigned>(
          __builtin_convertvector(*reinterpret_cast<const Doubles*>(dot.c + at) * scale, Integers));
      Doubles total{};
      // Eight products of less than 2^27 units each fit an integer.
      for (uint32_t k = 0; k < dot.depth;) {
        const uint32_t end = k + 8 < dot.depth ? k + 8 : dot.depth;
        for (; k < end; ++k) {
          const size_t row = kSparse ? b_row[k] : k;
          const Doubles product =
              *reinterpret_cast<const Doubles*>(dot.b + row * columns + n) * a[k];
          sum += reinterpret_cast<Unsigned>(__builtin_convertvector(product * scale, Integers));
        }
        total += __builtin_convertvector(reinterpret_cast<Integers>(sum), Doubles);
        sum = Unsigned{};
      }
      *reinterpret_cast<Doubles*>(dot.sum + at) = total * unit;
    }
  }
}

// Infinities and NaNs decide the result by the ordinary rules, whatever the finite terms are.
void OverrideSpecial(const FusedDot& dot) {
  for (uint32_t m = 0; m < dot.rows; ++m) {
    const size_t first = static_cast<size_t>(m) * dot.a_stride;
    for (uint32_t n = 0; n < dot.columns; ++n) {
      const size_t at = static_cast<size_t>(m) * dot.columns + n;
      double sum = dot.c[at];
      for (uint32_t k = 0; k < dot.depth; ++k) {
        const size_t row = dot.b_row != nullptr ? dot.b_row[first + k] : k;
        sum += dot.a[first + k] * dot.b[row * dot.columns + n];
      }
      if (sum - sum != 0) dot.sum[at] = sum;
    }
  }
}

void Fused(const FusedDot& dot) {
  if (dot.b_row != nullptr) {
    FusedSteps<true>(dot);
  } else {
    FusedSteps<false>(dot);
  }
  if (dot.special) OverrideSpecial(dot);
}

void Integer(const IntegerDot& dot) {
  for (uint32_t m = 0; m < dot.rows; ++m) {
    const size_t first = static_cast<size_t>(m) * dot.depth;
    for (uint32_t n = 0; n < dot.columns; n += kGroup) {
      const size_t at = static_cast<size_t>(m) * dot.columns + n;
      Integers sum{};
      for (uint32_t k = 0; k < dot.depth; ++k) {
        const size_t row = dot.b_row != nullptr ? dot.b_row[first + k] : k;
        sum += *reinterpret_cast<const Integers*>(dot.b + row * dot.columns + n) * dot.a[first + k];
      }
      for (uint32_t j = 0; j < kGroup; ++j) {
        int64_t total = static_cast<int64_t>(dot.c[at + j]) + sum[j];
        if (dot.saturate) {
          total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
        }
        dot.d[at + j] = static_cast<int32_t>(static_cast<uint32_t>(total));
      }
    }
  }
}

constexpr uint64_t kQuietBit = 0x0008000000000000ull;

// As the tensor core mostly does, a NaN operand of a step is passed on (of several that of b, then
// c, then a); which one is a matter of the instruction set otherwise.
double ChainedNan(double a, double b, double c) {
  const double nan = b != b ? b : c != c ? c : a != a ? a : BitCast<double>(0xfff0000000000000ull);
  return BitCast<double>(BitCast<uint64_t>(nan) | kQuietBit);
}

void Chained(const DoubleDot& dot) {
  for (uint32_t m = 0; m < dot.rows; ++m) {
    double* const c = dot.c + static_cast<size_t>(m) * dot.columns;
    for (uint32_t k = 0; k < dot.depth; ++k) {
      const double a = dot.a[static_cast<size_t>(m) * dot.depth + k];
      const double* const b = dot.b + static_cast<size_t>(k) * dot.columns;
      for (uint32_t n = 0; n < dot.columns; n += kGroup) {
        const Doubles x = *reinterpret_cast<const Doubles*>(b + n);
        const Doubles y = *reinterpret_cast<const Doubles*>(c + n);
        uint32_t any_nan = 0;
        for (uint32_t j = 0; j < kGroup; ++j) {
          c[n + j] = __builtin_fma(a, x[j], y[j]);
          any_nan |= c[n + j] != c[n + j] ? 1u : 0u;
        }
        for (uint32_t j = 0; any_nan != 0 && j < kGroup; ++j) {
          if (c[n + j] != c[n + j]) c[n + j] = ChainedNan(a, x[j], y[j]);
        }
      }
    }
  }
}

}  // namespace

const MatrixKernels& Matrix() {
  static constexpr MatrixKernels kKernels = {
      &Decode<5, 10, 0, true>,
      &Decode<8, 7, 0, true>,
      &Decode<8, 10, 13, true>,
      &Decode<4, 3, 0, false>,
      &Decode<5, 2, 0, true>,
      &Decode<8, 23, 0, true>,
      &TruncateToSingle,
      &NearestHalf,
      &Fused,
      &Integer,
      &Chained,
  };
  return kKernels;
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
