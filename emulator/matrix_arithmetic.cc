// The rules by which an H200 multiplies matrices, each as a function over whole matrices; the loops
// are in isa/lane_matrix.cc.
#include "emulator/matrix_arithmetic.h"

#include <cmath>
#include <cstring>

namespace ops_debug::emulator {
namespace {

constexpr int32_t kFractionBits = 25;
constexpr int32_t kShortFractionBits = 13;
constexpr int32_t kSmallestE4m3Exponent = -6;

float AsFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint32_t NearestSingle(float value) {
  if (value != value) return 0x7fffffff;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

void Round(MatrixType type, const std::vector<double>& sums, std::vector<uint32_t>* bits) {
  bits->resize(sums.size());
  const MatrixKernels& kernels = SelectMatrixKernels();
  (type == MatrixType::kF16 ? kernels.nearest_f16 : kernels.truncate_f32)(sums.data(), bits->data(),
                                                                          sums.size());
}

// One fused step over the depth [first, first + count).
void Step(const MatrixProblem& problem, MatrixWorkspace& work, uint32_t first, uint32_t count,
          int32_t fraction_bits) {
  work.sums.resize(static_cast<size_t>(problem.rows) * problem.columns);
  FusedDot dot;
  dot.rows = problem.rows;
  dot.columns = problem.columns;
  dot.depth = count;
  dot.a_stride = problem.depth;
  dot.fraction_bits = fraction_bits;
  dot.a = work.float_a.value.data() + first;
  dot.a_exponent = work.float_a.exponent.data() + first;
  const size_t skipped = work.b_row.empty() ? static_cast<size_t>(first) * problem.columns : 0;
  dot.b = work.float_b.value.data() + skipped;
  dot.b_exponent = work.float_b.exponent.data() + skipped;
  dot.b_row = work.b_row.empty() ? nullptr : work.b_row.data() + first;
  dot.c = work.float_c.value.data();
  dot.c_exponent = work.float_c.exponent.data();
  dot.sum = work.sums.data();
  dot.special = work.float_a.special || work.float_b.special || work.float_c.special;
  SelectMatrixKernels().fused(dot);
}

void DecodeOperands(const MatrixProblem& problem, MatrixWorkspace& work) {
  work.float_a.Decode(problem.a, work.a);
  work.float_b.Decode(problem.b, work.b);
  if (problem.negate_a) work.float_a.Negate();
  if (problem.negate_b) work.float_b.Negate();
}

void Fused(const MatrixProblem& problem, MatrixWorkspace& work) {
  DecodeOperands(problem, work);
  work.float_c.Decode(problem.c, work.c);
  const bool is_short = problem.rule == MatrixRule::kFusedShort;
  const uint32_t depth =
      problem.rule == MatrixRule::kFusedHalves ? problem.depth / 2 : problem.depth;
  for (uint32_t first = 0; first < problem.depth; first += depth) {
    if (first != 0) work.float_c.Decode(problem.d, work.d);
    Step(problem, work, first, depth, is_short ? kShortFractionBits : kFractionBits);
    Round(problem.d, work.sums, &work.d);
  }
  if (is_short && problem.d == MatrixType::kF32) {
    for (uint32_t& bits : work.d) {
      if (bits != 0x7fffffff) bits &= ~0u << (23 - kShortFractionBits);
    }
  }
}

// Subnormals of e4m3 are normal numbers of f16, with exponents of their own.
void AsHalves(FloatMatrix& matrix) {
  for (size_t i = 0; i < matrix.value.size(); ++i) {
    if (matrix.exponent[i] == kSmallestE4m3Exponent) {
      matrix.exponent[i] = std::ilogb(matrix.value[i]);
    }
  }
}

void Converted(const MatrixProblem& problem, MatrixWorkspace& work) {
  DecodeOperands(problem, work);
  if (problem.a == MatrixType::kE4m3) AsHalves(work.float_a);
  if (problem.b == MatrixType::kE4m3) AsHalves(work.float_b);
  work.float_c.SetZero(static_cast<size_t>(problem.rows) * problem.columns);
  const uint32_t half = problem.depth / 2;
  Step(problem, work, 0, half, kFractionBits);
  Round(problem.d, work.sums, &work.d);
  work.float_c.Decode(problem.d, work.d);
  Step(problem, work, half, half, kFractionBits);
  Round(problem.d, work.sums, &work.d);
  // The last addition rounds once: sums of two f16 are exact as doubles.
  work.float_a.Decode(problem.d, work.d);
  work.float_c.Decode(problem.c, work.c);
  for (size_t i = 0; i < work.d.size(); ++i) {
    const double sum = work.float_a.value[i] + work.float_c.value[i];
    if (problem.d == MatrixType::kF16) {
      work.sums[i] = sum;
    } else {
      work.d[i] = NearestSingle(AsFloat(work.d[i]) + AsFloat(work.c[i]));
    }
  }
  if (problem.d == MatrixType::kF16) Round(problem.d, work.sums, &work.d);
}

// Measured: with an f32 result ((a0 b0 + a1 b1) + a2 b2) + a3 b3 from +0 on, then c; with an f16
// result ((a0 b0 + a1 b1) + c) + (a2 b2 + a3 b3), where a0 b0 and a2 b2 keep the sign of a zero.
void Quads(const MatrixProblem& problem, MatrixWorkspace& work) {
  DecodeOperands(problem, work);
  work.float_c.Decode(problem.c, work.c);
  work.sums.resize(work.float_c.value.size());
  work.d.resize(work.float_c.value.size());
  for (uint32_t row = 0; row < problem.rows; ++row) {
    const double* const a = work.float_a.value.data() + static_cast<size_t>(row) * 4;
    for (uint32_t column = 0; column < problem.columns; ++column) {
      const uint32_t b_column = row / 8 * 8 + column;  // of the same eight lanes
      const auto product = [&](uint32_t k, float sum) {
        return std::fma(
            static_cast<float>(a[k]),
            static_cast<float>(work.float_b.value[static_cast<size_t>(k) * 32 + b_column]), sum);
      };
      const size_t at = static_cast<size_t>(row) * problem.columns + column;
      const auto c = static_cast<float>(work.float_c.value[at]);
      if (problem.d == MatrixType::kF16) {
        work.sums[at] = (product(1, product(0, -0.0f)) + c) + product(3, product(2, -0.0f));
      } else {
        work.d[at] = NearestSingle(product(3, product(2, product(1, product(0, 0.0f)))) + c);
      }
    }
  }
  if (problem.d == MatrixType::kF16) Round(problem.d, work.sums, &work.d);
}

void Doubles(const MatrixProblem& problem, MatrixWorkspace& work) {
  SelectMatrixKernels().chained({problem.rows, problem.columns, problem.depth, work.double_a.data(),
                                 work.double_b.data(), work.double_c.data()});
}

void Integers(const MatrixProblem& problem, MatrixWorkspace& work) {
  DecodeIntegers(problem.a, work.a, &work.integer_a);
  DecodeIntegers(problem.b, work.b, &work.integer_b);
  work.d.resize(work.c.size());
  IntegerDot dot;
  dot.rows = problem.rows;
  dot.columns = problem.columns;
  dot.depth = problem.depth;
  dot.a = work.integer_a.data();
  dot.b = work.integer_b.data();
  dot.b_row = work.b_row.empty() ? nullptr : work.b_row.data();
  dot.c = reinterpret_cast<const int32_t*>(work.c.data());
  dot.d = reinterpret_cast<int32_t*>(work.d.data());
  dot.saturate = problem.saturate;
  SelectMatrixKernels().integer(dot);
}

// Bits of a row of a and of a column of b, packed into words.
void Bits(const MatrixProblem& problem, MatrixWorkspace& work) {
  const bool is_xor = problem.rule == MatrixRule::kXorPopc;
  const uint32_t words = problem.depth / 64;
  std::vector<uint64_t> a(static_cast<size_t>(problem.rows) * words);
  std::vector<uint64_t> b(static_cast<size_t>(problem.columns) * words);
  for (uint32_t k = 0; k < problem.depth; ++k) {
    for (uint32_t m = 0; m < problem.rows; ++m) {
      a[m * words + k / 64] |= uint64_t{work.a[m * problem.depth + k]} << (k % 64);
    }
    for (uint32_t n = 0; n < problem.columns; ++n) {
      b[n * words + k / 64] |= uint64_t{work.b[k * problem.columns + n]} << (k % 64);
    }
  }
  work.d.resize(work.c.size());
  for (uint32_t m = 0; m < problem.rows; ++m) {
    for (uint32_t n = 0; n < problem.columns; ++n) {
      uint32_t count = 0;
      for (uint32_t w = 0; w < words; ++w) {
        const uint64_t x = a[m * words + w];
        const uint64_t y = b[n * words + w];
        count += static_cast<uint32_t>(__builtin_popcountll(is_xor ? x ^ y : x & y));
      }
      const size_t at = static_cast<size_t>(m) * problem.columns + n;
      work.d[at] = work.c[at] + count;
    }
  }
}

}  // namespace

MatrixWorkspace& MatrixWorkspace::OfThisThread() {
  static thread_local MatrixWorkspace workspace;
  return workspace;
}

void Multiply(const MatrixProblem& problem, MatrixWorkspace& work) {
  switch (problem.rule) {
    case MatrixRule::kFused:
    case MatrixRule::kFusedShort:
    case MatrixRule::kFusedHalves:
      return Fused(problem, work);
    case MatrixRule::kConverted:
      return Converted(problem, work);
    case MatrixRule::kQuads:
      return Quads(problem, work);
    case MatrixRule::kDouble:
      return Doubles(problem, work);
    case MatrixRule::kInteger:
      return Integers(problem, work);
    case MatrixRule::kAndPopc:
    case MatrixRule::kXorPopc:
      return Bits(problem, work);
  }
}

}  // namespace ops_debug::emulator
