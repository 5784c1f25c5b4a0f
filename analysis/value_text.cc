// The type stands in the opcode (PTX ISA, "Instruction statements"): the last dotted part that is
// one; .v2, .v4 and .v8 say how many elements.
#include "analysis/value_text.h"

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace ops_debug::analysis {
namespace {

constexpr size_t kShownElements = 4;

struct ElementType {
  std::string_view name;
  size_t bytes;
  char kind;  // 'f' float, 'h' half, 'w' bfloat16, 's' signed, 'u' unsigned, 'b' bits
};
constexpr ElementType kTypes[] = {
    {"f32", 4, 'f'},    {"f64", 8, 'f'}, {"f16", 2, 'h'}, {"f16x2", 2, 'h'}, {"bf16", 2, 'w'},
    {"bf16x2", 2, 'w'}, {"s8", 1, 's'},  {"s16", 2, 's'}, {"s32", 4, 's'},   {"s64", 8, 's'},
    {"u8", 1, 'u'},     {"u16", 2, 'u'}, {"u32", 4, 'u'}, {"u64", 8, 'u'},   {"b8", 1, 'b'},
    {"b16", 2, 'b'},    {"b32", 4, 'b'}, {"b64", 8, 'b'}, {"b128", 8, 'b'},
};

const ElementType* TypeOf(std::string_view instruction) {
  const size_t end = instruction.find_first_of(" \t[");
  std::string_view opcode = instruction.substr(0, end);
  if (!opcode.empty() && opcode.front() == '@') {  // a predicate stands in front
    const size_t next = instruction.find_first_not_of(" \t", end);
    if (end == std::string_view::npos || next == std::string_view::npos) return nullptr;
    const size_t last = instruction.find_first_of(" \t[", next);
    opcode = instruction.substr(next, last == std::string_view::npos ? last : last - next);
  }
  const ElementType* type = nullptr;
  while (!opcode.empty()) {
    const size_t dot = opcode.find('.');
    const std::string_view part = opcode.substr(0, dot);
    for (const ElementType& known : kTypes) {
      if (known.name == part) type = &known;
    }
    if (dot == std::string_view::npos) break;
    opcode.remove_prefix(dot + 1);
  }
  return type;
}

uint64_t ToInteger(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

template <class Float, class Integer>
Float Reinterpret(Integer bits) {
  static_assert(sizeof(Float) == sizeof(Integer));
  Float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// IEEE 754 binary16.
double HalfToDouble(uint64_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  const auto fraction = static_cast<double>(bits & 0x3ff);
  if (exponent == 0x1f) return fraction > 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::string FloatText(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string HexText(std::string_view bytes) {
  std::string text = "0x";
  for (size_t i = bytes.size(); i-- > 0;) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[i]));
    text += digits;
  }
  return text;
}

// Small numbers are integers, words whose exponent is that of an everyday float are floats.
std::string BitsText(std::string_view bytes) {
  const uint64_t value = ToInteger(bytes);
  constexpr uint64_t kSmall = 1u << 20;
  if (value < kSmall) return std::to_string(value);
  const std::string hex = HexText(bytes);
  if (bytes.size() != 4) return hex;
  const auto as_float = Reinterpret<float>(static_cast<uint32_t>(value));
  const float size = std::fabs(as_float);
  constexpr float kLeast = 1e-6F, kMost = 1e9F;
  if (size >= kLeast && size <= kMost) return hex + " (" + FloatText(as_float) + " as a float)";
  return hex;
}

std::string ElementText(std::string_view bytes, char kind) {
  const uint64_t value = ToInteger(bytes);
  switch (kind) {
    case 'f':
      return FloatText(bytes.size() == 8 ? Reinterpret<double>(value)
                                         : Reinterpret<float>(static_cast<uint32_t>(value)));
    case 'h':
      return FloatText(HalfToDouble(value));
    case 'w':
      return FloatText(Reinterpret<float>(static_cast<uint32_t>(value << 16)));
    case 's': {
      const auto shift = static_cast<uint32_t>(64 - 8 * bytes.size());
      return std::to_string(static_cast<int64_t>(value << shift) >> shift);
    }
    case 'u':
      return std::to_string(value);
    default:
      return BitsText(bytes);
  }
}

}  // namespace

std::string ValueText(std::string_view bytes, std::string_view instruction) {
  if (bytes.empty()) return "";
  const ElementType* type = TypeOf(instruction);
  if (type == nullptr || bytes.size() % type->bytes != 0) {
    return bytes.size() <= 8 ? BitsText(bytes) : HexText(bytes.substr(0, 16));
  }
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += type->bytes) {
    if (at / type->bytes == kShownElements) return text + ", ...";
    text += (at > 0 ? ", " : "") + ElementText(bytes.substr(at, type->bytes), type->kind);
  }
  return text;
}

}  // namespace ops_debug::analysis
