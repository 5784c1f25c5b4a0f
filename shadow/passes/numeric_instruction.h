// What an instruction computes with numbers of floating point: operation, types, which operands are
// its factors. Source: PTX ISA 9.0, 9.7.3 to 9.7.5, 9.7.9.22 (cvt), 9.7.14 (mma, wmma).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "shadow/abi/precision_abi.h"

namespace ops_debug::shadow {

struct NumericInstruction {
  NumericOperation operation = kOperationAdd;
  NumericType operand_type = kTypeF32, result_type = kTypeF32;
  // Two values in a register, of the operands (but for a conversion that packs) and of the result.
  bool packed = false;
  // Of the result, and of a, b, c; null: none. Operands of a matrix instruction are vectors. Those
  // of a store are up to four values of the same kind.
  const ptx::Operand* result = nullptr;
  std::vector<const ptx::Operand*> operands;
  // kOperationToInteger: magnitudes from here on do not fit; its bits as f32 and f64.
  double integer_limit = 0;
  bool integer_signed = false;      // the operand of a conversion from an integer
  std::string_view matrix_factors;  // type of A and B of a matrix instruction: ".f16"

  bool Narrows() const;  // kOperationConvert: to fewer bits of precision or of range
  bool Widens() const;
};

// Empty: it computes with no such numbers, or in a way that is not understood.
std::optional<NumericInstruction> DescribeNumeric(const ptx::Instruction& instruction);

// "f16", as PTX names it; "s64" for integers.
const char* NameOf(NumericType type);
// Bits of one value.
uint32_t WidthOf(NumericType type);

// The 0f/0d literal's or integer's bits as they stand in a register of `type`; empty: `operand` is
// no such literal.
std::optional<uint64_t> LiteralBits(const ptx::Operand& operand, NumericType type);

}  // namespace ops_debug::shadow
