// Element types of matrix instructions, and arrays of elements as the arithmetic wants them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "emulator/isa/matrix_kernels.h"
#include "ptx/ir.h"

namespace ops_debug::emulator {

enum class MatrixType : uint8_t {
  kNone,
  kF16,
  kBf16,
  kTf32,
  kE4m3,
  kE5m2,
  kF32,
  kF64,
  kS8,
  kU8,
  kS4,
  kU4,
  kB1,
  kS32,
};

MatrixType ParseMatrixType(std::string_view modifier);  // ".f16"; kNone if it is no such type
uint32_t BitsOf(MatrixType type);
// Of those in modifiers, in order. ".b1" of "and.popc" is a type, the operation is none.
std::vector<MatrixType> MatrixTypes(const ptx::Instruction& in);
bool IsNarrowFloat(MatrixType type);  // operands of a tensor core's fixed-point step
bool IsNarrowInteger(MatrixType type);

// "m16n8k16" -> 16, 8, 16.
struct MatrixShape {
  uint32_t m = 0, n = 0, k = 0;
};
bool ParseMatrixShape(std::string_view modifier, MatrixShape* shape);
// The instruction's shape modifier; m = 0 if it has none.
MatrixShape ShapeOf(const ptx::Instruction& in);

// Values of a floating-point matrix beside the exponents that align them.
struct FloatMatrix {
  std::vector<double> value;
  std::vector<int32_t> exponent;
  bool special = false;  // an element is infinite or NaN

  // `bits`: one element per word, in the same order.
  void Decode(MatrixType type, const std::vector<uint32_t>& bits);
  void SetZero(size_t count);
  void Negate();
};

// Elements of s8, u8, s4, u4, b1 as integers.
void DecodeIntegers(MatrixType type, const std::vector<uint32_t>& bits, std::vector<int32_t>* out);

}  // namespace ops_debug::emulator
