// d = a * b + c as an H200 computes it, whatever model is emulated, on whole matrices in row-major
// order. Every rule here was found by experiment on an H200 (test/golden: the families mma, wmma
// and wgmma agree bit for bit); the sources of the ideas are named beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/matrix_format.h"

namespace ops_debug::emulator {

enum class MatrixRule : uint8_t {
  // One fixed-point step (FusedDot): 25 bits below the largest exponent, f32 results cut toward
  // zero, f16 results rounded to nearest even.
  kFused,
  // wgmma of fp8: the same with 13 bits, and f32 results keep 13 fraction bits.
  kFusedShort,
  // wmma of tf32: two fused steps, one per half of the depth.
  kFusedHalves,
  // mma.sync of fp8 on Hopper: the operands become f16, two fused steps start from zero (see
  // SplitDepth), and c is added to nearest even in the type of d.
  kConverted,
  // mma.m8n8k4 of f16: f32 fused multiply-adds outside the tensor core.
  kQuads,
  kDouble,   // f64 fused multiply-adds in the order of k
  kInteger,  // exact; wraps or saturates
  kAndPopc,
  kXorPopc,
};

// Where kConverted's arithmetic wants element k of a depth of `depth`: pairs go alternately to the
// first and the second step.
inline uint32_t SplitDepth(uint32_t k, uint32_t depth) {
  return ((k & 2) != 0 ? depth / 2 : 0) + k / 4 * 2 + (k & 1);
}

struct MatrixProblem {
  uint32_t rows = 0, columns = 0, depth = 0;  // depth of a; b is deeper if a is sparse
  MatrixType a = MatrixType::kF16, b = MatrixType::kF16, c = MatrixType::kF32, d = MatrixType::kF32;
  MatrixRule rule = MatrixRule::kFused;
  bool saturate = false;
  bool negate_a = false, negate_b = false;
};

// Matrices of one instruction, reused from one to the next.
struct MatrixWorkspace {
  std::vector<uint32_t> a, b, c, d;                  // one element per word
  std::vector<double> double_a, double_b, double_c;  // kDouble; double_c is also the result
  std::vector<uint8_t> b_row;  // sparse a: row of b for each element of a; else empty

  FloatMatrix float_a, float_b, float_c;
  std::vector<int32_t> integer_a, integer_b;
  std::vector<double> sums;

  static MatrixWorkspace& OfThisThread();
};

// Computes work.d (work.double_c for kDouble) from the other matrices.
void Multiply(const MatrixProblem& problem, MatrixWorkspace& work);

}  // namespace ops_debug::emulator
