// Values of PTX constants and constant expressions (PTX ISA 9.0, section 4.5).
#pragma once

#include <cstdint>
#include <string_view>

namespace ops_debug::ptx {

struct Constant {
  uint64_t bits = 0;         // two's complement, or the bits of a 0f/0d literal
  bool is_integer = true;    // false: floating point, or an expression without a value (x/0)
  bool is_unsigned = false;  // .u64 in the rules of 4.5.5, else .s64
};

// `text` is one kNumber token.
Constant DecodeNumber(std::string_view text);

// -x !x ~x +x
Constant ApplyUnary(char operation, Constant operand);

// Precedence of a binary operator (1 = ||, 10 = multiplication), 0 if `text` is none. ?: is the
// parser's business.
int BinaryPrecedence(std::string_view text);
Constant ApplyBinary(std::string_view operation, Constant left, Constant right);

}  // namespace ops_debug::ptx
