// Formats: IEEE 754 (binary16, 32, 64), bfloat16, OCP 8-bit floating point (e4m3 without infinity,
// e5m2).
#include "analysis/numeric_words.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

namespace ops_debug::analysis {
namespace {

struct Format {
  std::string_view type;  // PTX
  const char* name;
  int exponent_bits = 0, fraction_bits = 0;
  bool has_infinity = true;
};
constexpr std::array<Format, 7> kFormats = {{{"f16", "half", 5, 10},
                                             {"bf16", "bfloat16", 8, 7},
                                             {"f32", "float", 8, 23},
                                             {"tf32", "tf32", 8, 23},
                                             {"f64", "double", 11, 52},
                                             {"e4m3", "e4m3", 4, 3, false},
                                             {"e5m2", "e5m2", 5, 2}}};

const Format* Find(std::string_view type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

double Decode(const Format& format, uint64_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint64_t fraction = bits & ((1ull << format.fraction_bits) - 1);
  const int exponent =
      static_cast<int>(bits >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> (format.exponent_bits + format.fraction_bits) & 1) != 0 ? -1 : 1;
  const int all = (1 << format.exponent_bits) - 1;
  if (exponent == all && format.has_infinity) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == all && fraction == (1ull << format.fraction_bits) - 1) return NAN;
  if (exponent == 0)
    return sign * std::ldexp(static_cast<double>(fraction), 1 - bias - format.fraction_bits);
  return sign * std::ldexp(static_cast<double>(fraction | 1ull << format.fraction_bits),
                           exponent - bias - format.fraction_bits);
}

template <class Value>
std::string Shortest(Value value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+inf" : "-inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return {text, end.ptr};
}

std::string InBrackets(const std::string& text) {
  return text.front() == '-' || text.front() == '+' ? '(' + text + ')' : text;
}

}  // namespace

std::optional<double> ToDouble(const proto::NumericValue& value) {
  if (const Format* format = Find(value.type())) return Decode(*format, value.bits());
  if (value.type() == "s32") return static_cast<int32_t>(value.bits());
  if (value.type() == "u32") return static_cast<uint32_t>(value.bits());
  if (value.type() == "s64") return static_cast<double>(static_cast<int64_t>(value.bits()));
  if (value.type() == "u64") return static_cast<double>(value.bits());
  if (value.type() == "s16") return static_cast<int16_t>(value.bits());
  if (value.type() == "u16") return static_cast<uint16_t>(value.bits());
  if (value.type() == "s8") return static_cast<int8_t>(value.bits());
  if (value.type() == "u8") return static_cast<uint8_t>(value.bits());
  return std::nullopt;
}

std::string NumberText(double value) { return Shortest(value); }

std::string NumberText(const proto::NumericValue& value) {
  const std::optional<double> number = ToDouble(value);
  if (!number) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), value.bits(), 16);
    return "0x" + std::string(text, end.ptr);
  }
  // Narrow values are told as the float that they are exactly.
  return Find(value.type()) == nullptr || value.type() == "f64"
             ? Shortest(*number)
             : Shortest(static_cast<float>(*number));
}

std::string LargestText(const std::string& type) {
  const Format* format = Find(type);
  if (format == nullptr) return "";
  const uint64_t exponent = (1ull << format->exponent_bits) - (format->has_infinity ? 2 : 1);
  const uint64_t fraction = (1ull << format->fraction_bits) - (format->has_infinity ? 1 : 2);
  const double largest = Decode(*format, exponent << format->fraction_bits | fraction);
  return type == "f64" ? Shortest(largest) : Shortest(static_cast<float>(largest));
}

std::string TypeName(const std::string& type) {
  const Format* format = Find(type);
  return format == nullptr ? type : format->name;
}

std::string Opcode(const std::string& instruction) {
  size_t begin = 0;
  if (instruction.starts_with('@'))
    begin = std::min(instruction.find(' '), instruction.size() - 1) + 1;
  const size_t end = instruction.find_first_of(" ;", begin);
  return instruction.substr(begin, end == std::string::npos ? end : end - begin);
}

std::string OperationOf(const std::string& instruction) {
  const std::string opcode = Opcode(instruction);
  return opcode.substr(0, opcode.find('.'));
}

std::string OperationText(const proto::NumericalFault& fault) {
  const std::string opcode = Opcode(fault.site().instruction());
  const std::string operation = OperationOf(fault.site().instruction());
  std::vector<std::string> values;
  for (const proto::NumericValue& operand : fault.operands()) values.push_back(NumberText(operand));
  if (values.empty()) return opcode;
  const auto infix = [&](size_t i) { return InBrackets(values[i]); };
  if (values.size() == 3 && (operation == "fma" || operation == "mad"))
    return opcode + ": " + infix(0) + " * " + infix(1) + " + " + infix(2);
  if (values.size() == 2) {
    const char* sign = operation == "add"   ? " + "
                       : operation == "sub" ? " - "
                       : operation == "mul" ? " * "
                       : operation == "div" ? " / "
                                            : nullptr;
    if (sign != nullptr) return opcode + ": " + infix(0) + sign + infix(1);
  }
  std::string text = opcode + " of ";
  for (size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == values.size() ? " and " : ", ") + values[i];
  }
  return text;
}

}  // namespace ops_debug::analysis
