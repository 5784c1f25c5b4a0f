// Constant arithmetic as the manual defines it: 64 bits, signed or unsigned, C precedence.
#include "ptx/constant.h"

namespace ops_debug::ptx {
namespace {

uint64_t ParseDigits(std::string_view digits, unsigned base) {
  uint64_t value = 0;
  for (char c : digits) {
    if (c == 'U') break;
    const unsigned digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    value = value * base + digit;
  }
  return value;
}

int64_t Signed(uint64_t bits) { return static_cast<int64_t>(bits); }

Constant Undefined() { return {0, false, false}; }

}  // namespace

Constant DecodeNumber(std::string_view text) {
  Constant result;
  const char second = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : 0;
  if (text[0] == '0' && (second == 'f' || second == 'd'))
    return {ParseDigits(text.substr(2), 16), false, false};
  if (text[0] == '0' && second == 'x') {
    result.bits = ParseDigits(text.substr(2), 16);
  } else if (text[0] == '0' && second == 'b') {
    result.bits = ParseDigits(text.substr(2), 2);
  } else if (text.find_first_of(".eE") != std::string_view::npos) {
    return Undefined();
  } else {
    result.bits = ParseDigits(text, text[0] == '0' ? 8 : 10);
  }
  result.is_unsigned = text.back() == 'U' || Signed(result.bits) < 0;
  return result;
}

Constant ApplyUnary(char operation, Constant operand) {
  if (!operand.is_integer) return Undefined();
  switch (operation) {
    case '-':
      return {0 - operand.bits, true, operand.is_unsigned};
    case '~':
      return {~operand.bits, true, operand.is_unsigned};
    case '!':
      return {operand.bits == 0, true, false};
    default:
      return operand;
  }
}

int BinaryPrecedence(std::string_view text) {
  if (text.empty()) return 0;
  switch (text[0]) {
    case '|':
      return text.size() == 2 ? 1 : 3;
    case '&':
      return text.size() == 2 ? 2 : 5;
    case '^':
      return 4;
    case '=':
      return text.size() == 2 ? 6 : 0;
    case '!':
      return text.size() == 2 ? 6 : 0;
    case '<':
    case '>':
      return text.size() == 2 && text[1] == text[0] ? 8 : 7;
    case '+':
    case '-':
      return 9;
    case '*':
    case '/':
    case '%':
      return 10;
    default:
      return 0;
  }
}

Constant ApplyBinary(std::string_view operation, Constant left, Constant right) {
  if (!left.is_integer || !right.is_integer) return Undefined();
  const uint64_t a = left.bits, b = right.bits;
  const bool is_unsigned = left.is_unsigned || right.is_unsigned;
  const auto arithmetic = [&](uint64_t bits) { return Constant{bits, true, is_unsigned}; };
  const auto truth = [](bool value) { return Constant{value, true, false}; };
  const bool less = is_unsigned ? a < b : Signed(a) < Signed(b);
  switch (operation[0]) {
    case '+':
      return arithmetic(a + b);
    case '-':
      return arithmetic(a - b);
    case '*':
      return arithmetic(a * b);
    case '/':
      if (b == 0) return Undefined();
      if (!is_unsigned && Signed(b) == -1) return arithmetic(0 - a);  // also INT64_MIN / -1
      return arithmetic(is_unsigned ? a / b : static_cast<uint64_t>(Signed(a) / Signed(b)));
    case '%':
      if (b == 0) return Undefined();
      if (!is_unsigned && Signed(b) == -1) return arithmetic(0);
      return arithmetic(is_unsigned ? a % b : static_cast<uint64_t>(Signed(a) % Signed(b)));
    case '^':
      return arithmetic(a ^ b);
    case '&':
      return operation.size() == 2 ? truth(a != 0 && b != 0) : arithmetic(a & b);
    case '|':
      return operation.size() == 2 ? truth(a != 0 || b != 0) : arithmetic(a | b);
    case '=':
      return truth(a == b);
    case '!':
      return truth(a != b);
    case '<':
      if (operation == "<<") return {b < 64 ? a << b : 0, true, left.is_unsigned};
      return truth(operation == "<=" ? less || a == b : less);
    case '>':
      if (operation == ">>") {
        if (left.is_unsigned) return {b < 64 ? a >> b : 0, true, true};
        return {static_cast<uint64_t>(Signed(a) >> (b < 64 ? b : 63)), true, false};
      }
      return truth(operation == ">=" ? !less : !less && a != b);
    default:
      return Undefined();
  }
}

}  // namespace ops_debug::ptx
