// The list of PTX types, once.
#include "emulator/ptx_type.h"

namespace ops_debug::emulator {
namespace {

enum class Class : uint8_t { kOther, kBits, kUnsigned, kSigned, kFloat };
struct Row {
  Type type;
  std::string_view name;
  uint8_t shift;
  Class type_class;
};
constexpr Row kRows[] = {
    {Type::kNone, "", 2, Class::kOther},         {Type::kPred, "pred", 2, Class::kOther},
    {Type::kB8, "b8", 0, Class::kBits},          {Type::kU8, "u8", 0, Class::kUnsigned},
    {Type::kS8, "s8", 0, Class::kSigned},        {Type::kB16, "b16", 1, Class::kBits},
    {Type::kU16, "u16", 1, Class::kUnsigned},    {Type::kS16, "s16", 1, Class::kSigned},
    {Type::kB32, "b32", 2, Class::kBits},        {Type::kU32, "u32", 2, Class::kUnsigned},
    {Type::kS32, "s32", 2, Class::kSigned},      {Type::kB64, "b64", 3, Class::kBits},
    {Type::kU64, "u64", 3, Class::kUnsigned},    {Type::kS64, "s64", 3, Class::kSigned},
    {Type::kF16, "f16", 1, Class::kFloat},       {Type::kBf16, "bf16", 1, Class::kFloat},
    {Type::kF16x2, "f16x2", 2, Class::kFloat},   {Type::kBf16x2, "bf16x2", 2, Class::kFloat},
    {Type::kU16x2, "u16x2", 2, Class::kOther},   {Type::kS16x2, "s16x2", 2, Class::kOther},
    {Type::kTf32, "tf32", 2, Class::kFloat},     {Type::kF32, "f32", 2, Class::kFloat},
    {Type::kF32x2, "f32x2", 3, Class::kFloat},   {Type::kF64, "f64", 3, Class::kFloat},
    {Type::kE4m3x2, "e4m3x2", 1, Class::kOther}, {Type::kE5m2x2, "e5m2x2", 1, Class::kOther},
};

const Row& RowOf(Type type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

Type ParseType(std::string_view modifier) {
  if (modifier.size() < 2 || modifier[0] != '.') return Type::kNone;
  for (const Row& row : kRows) {
    if (row.type != Type::kNone && row.name == modifier.substr(1)) return row.type;
  }
  return Type::kNone;
}

uint8_t ShiftOf(Type type) { return RowOf(type).shift; }
std::string_view NameOf(Type type) { return RowOf(type).name; }
std::string_view BitsName(uint8_t shift) { return NameOf(BitsType(shift)); }
Type BitsType(uint8_t shift) {
  constexpr Type kTypes[4] = {Type::kB8, Type::kB16, Type::kB32, Type::kB64};
  return kTypes[shift];
}
bool IsSigned(Type type) { return RowOf(type).type_class == Class::kSigned; }
bool IsInteger(Type type) {
  const Class c = RowOf(type).type_class;
  return c == Class::kBits || c == Class::kUnsigned || c == Class::kSigned;
}
bool IsFloat(Type type) { return RowOf(type).type_class == Class::kFloat; }
bool IsPair(Type type) {
  return type == Type::kF16x2 || type == Type::kBf16x2 || type == Type::kU16x2 ||
         type == Type::kS16x2;
}
bool IsHalf(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
}
std::string_view SignedName(Type type) {
  switch (type) {
    case Type::kB8:
      return "u8";
    case Type::kB16:
      return "u16";
    case Type::kB32:
      return "u32";
    case Type::kB64:
      return "u64";
    default:
      return NameOf(type);
  }
}
Type ElementOf(Type type) {
  if (type == Type::kF16x2) return Type::kF16;
  if (type == Type::kBf16x2) return Type::kBf16;
  if (type == Type::kU16x2) return Type::kU16;
  if (type == Type::kS16x2) return Type::kS16;
  return type;
}

Type TypeModifier(const ptx::Instruction& instruction, size_t n) {
  for (std::string_view modifier : instruction.modifiers) {
    const Type type = ParseType(modifier);
    if (type != Type::kNone && n-- == 0) return type;
  }
  return Type::kNone;
}

Type LastType(const ptx::Instruction& instruction) {
  Type last = Type::kNone;
  for (std::string_view modifier : instruction.modifiers) {
    const Type type = ParseType(modifier);
    if (type != Type::kNone) last = type;
  }
  return last;
}

}  // namespace ops_debug::emulator
