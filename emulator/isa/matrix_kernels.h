// Inner loops of the matrix instructions, compiled once per instruction set like the lane
// operations (lane_ops.h). They work on plain row-major arrays; which register holds which element
// is the business of matrix_fragment.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ops_debug::emulator {

// Exponent of operands that take no part in the alignment: zeros, infinities and NaNs.
inline constexpr int32_t kNoExponent = -4096;

// One step of a tensor core: sum[m][n] = c[m][n] + the products a[m][k] * b[k][n] over all k,
// computed in fixed point. Each product and c is cut (toward zero) `fraction_bits` below the
// largest exponent among them; the exponent of a product is the sum of the exponents of its
// factors. The cut terms are then added exactly. This is how tensor cores were found to work by
// Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ CS, 2021),
// there for older ones; fraction_bits and the number of products per step were measured on an H200
// (test/golden, families mma and wgmma: no result differs).
struct FusedDot {
  uint32_t rows = 0;
  uint32_t columns = 0;   // a multiple of 8
  uint32_t depth = 0;     // at most 32; at most 16 with more than 20 fraction bits
  uint32_t a_stride = 0;  // elements between rows of a
  int32_t fraction_bits = 0;
  const double* a = nullptr;  // [rows][a_stride]
  const int32_t* a_exponent = nullptr;
  const double* b = nullptr;  // [depth][columns]
  const int32_t* b_exponent = nullptr;
  // Row of b for each element of a, [rows][a_stride]: sparse operands. Null: row k for element k.
  const uint8_t* b_row = nullptr;
  const double* c = nullptr;  // [rows][columns]
  const int32_t* c_exponent = nullptr;
  double* sum = nullptr;  // [rows][columns]
  bool special = false;   // an operand is infinite or NaN
};

struct IntegerDot {
  uint32_t rows = 0, columns = 0, depth = 0;
  const int32_t* a = nullptr;      // [rows][depth]
  const int32_t* b = nullptr;      // [depth][columns]
  const uint8_t* b_row = nullptr;  // as in FusedDot
  const int32_t* c = nullptr;
  int32_t* d = nullptr;
  bool saturate = false;
};

struct DoubleDot {
  uint32_t rows = 0, columns = 0, depth = 0;
  const double* a = nullptr;
  const double* b = nullptr;
  double* c = nullptr;  // also the result
};

// Values and exponents of `count` elements given by their bits. True: one is infinite or NaN.
using DecodeFn = bool (*)(const uint32_t* bits, double* value, int32_t* exponent, size_t count);
// Bits of sums. NaNs are canonical.
using RoundFn = void (*)(const double* sum, uint32_t* bits, size_t count);

struct MatrixKernels {
  DecodeFn decode_f16, decode_bf16, decode_tf32, decode_e4m3, decode_e5m2, decode_f32;
  RoundFn truncate_f32;  // toward zero, beyond the range: infinity; no negative zero
  RoundFn nearest_f16;
  void (*fused)(const FusedDot& dot);
  void (*integer)(const IntegerDot& dot);
  // Fused multiply-adds in the order of k, to nearest even.
  void (*chained)(const DoubleDot& dot);
};

// The set for this processor (lane_dispatch.cc).
const MatrixKernels& SelectMatrixKernels();

}  // namespace ops_debug::emulator
