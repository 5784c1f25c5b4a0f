// Decoding of mov (with packing), cvt, cvta and isspacep.
#include <string>

#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

// ".rz", ".rm", ".rp" of a conversion to a floating-point type.
std::string FloatRounding(const ptx::Instruction& in) {
  for (std::string_view mode : {".rz", ".rm", ".rp"}) {
    if (in.Has(mode)) return std::string(mode);
  }
  return {};
}
// "rni"... of a conversion that yields integral values; empty if none is written.
std::string IntegerRounding(const ptx::Instruction& in) {
  for (std::string_view mode : {".rni", ".rzi", ".rmi", ".rpi"}) {
    if (in.Has(mode)) return std::string(mode.substr(1));
  }
  return {};
}

Space ParseSpace(const ptx::Instruction& in) {
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".global") return Space::kGlobal;
    if (modifier.starts_with(".shared")) return Space::kShared;
    if (modifier == ".local") return Space::kLocal;
    if (modifier == ".const") return Space::kConst;
    if (modifier.starts_with(".param")) return Space::kParameter;
  }
  return Space::kGeneric;
}

uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParameter:
      return kParameterWindow;
    default:
      return 0;
  }
}

}  // namespace

bool Decoder::Move(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 2 || type == Type::kNone) return false;
  if (type == Type::kPred) {
    const Ref source = ReadPredicate(in.operands[1]);
    EmitPredicate(PredicateOp::kMove, WritePredicate(in.operands[0]), source);
    return true;
  }
  if (in.operands[0].kind == Kind::kVector && in.operands[1].kind == Kind::kVector)
    return MoveVector(in);
  if (in.operands[1].kind == Kind::kVector) return Pack(in, type);
  if (in.operands[0].kind == Kind::kVector) return Unpack(in, type);
  const size_t before = out_.code.size();
  const Ref source = Read(in.operands[1], type);
  const Destination d = Write(in.operands[0], type);
  if (out_.code.size() == before + 1 && out_.code.back().op == Op::kSpecial &&
      d.final_ref == kNoRef) {
    out_.code.back().d = d.ref;  // straight into the register
    return true;
  }
  EmitAlu("mov." + std::string(BitsName(ShiftOf(type))), ShiftOf(type), d.ref, source);
  Finish(d);
  return true;
}

// mov.b64 %rd, {%r1, %r2}: pairs of neighbours are packed until one value is left.
bool Decoder::Pack(const ptx::Instruction& in, Type type) {
  const auto& parts = in.operands[1].children;
  size_t count = parts.size();
  if (count != 2 && count != 4 && count != 8) return false;
  uint8_t shift = ShiftOf(type);
  for (size_t n = count; n > 1; n /= 2) {
    if (shift == 0) return false;
    --shift;
  }
  Ref values[8];
  for (size_t i = 0; i < count; ++i) values[i] = ReadBits(parts[i], shift);
  const Destination d = Write(in.operands[0], type);
  for (; count > 1; count /= 2, ++shift) {
    for (size_t i = 0; i < count / 2; ++i) {
      const Ref wide = count == 2 ? d.ref : Temporary(static_cast<uint8_t>(shift + 1));
      EmitAlu("pack." + std::string(BitsName(shift)), static_cast<uint8_t>(shift + 1), wide,
              values[2 * i], values[2 * i + 1]);
      values[i] = wide;
    }
  }
  Finish(d);
  return true;
}

bool Decoder::Unpack(const ptx::Instruction& in, Type type) {
  const auto& parts = in.operands[0].children;
  const size_t count = parts.size();
  if (count != 2 && count != 4 && count != 8) return false;
  uint8_t shift = ShiftOf(type);
  Ref values[8] = {Read(in.operands[1], type)};
  if (count == 2 && shift > 0) {
    // The common case needs no temporaries: the halves are narrower registers than the source, so
    // they never overlap.
    --shift;
    for (size_t i = 0; i < 2; ++i) {
      if (parts[i].kind == Kind::kSink) continue;
      const Destination d = Write(parts[i], BitsType(shift));
      EmitAlu((i == 0 ? "unpack.low." : "unpack.high.") + std::string(BitsName(shift)), shift,
              d.ref, values[0]);
      Finish(d);
    }
    return true;
  }
  for (size_t have = 1; have < count; have *= 2) {
    if (shift == 0) return false;
    --shift;
    for (size_t i = have; i-- > 0;) {
      const Ref source = values[i];
      const std::string name(BitsName(shift));
      values[2 * i] = Temporary(shift);
      values[2 * i + 1] = Temporary(shift);
      EmitAlu("unpack.low." + name, shift, values[2 * i], source);
      EmitAlu("unpack.high." + name, shift, values[2 * i + 1], source);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].kind == Kind::kSink) continue;
    const Destination d = Write(parts[i], BitsType(shift));
    EmitAlu("mov." + std::string(BitsName(shift)), shift, d.ref, values[i]);
    Finish(d);
  }
  return true;
}

bool Decoder::Convert(const ptx::Instruction& in) {
  const Type to = TypeModifier(in, 0);
  const Type from = TypeModifier(in, 1);
  if (in.Has(".pack")) return PackSaturated(in);
  if (to == Type::kE4m3x2 || to == Type::kE5m2x2 || from == Type::kE4m3x2 || from == Type::kE5m2x2)
    return ConvertEight(in, to, from);
  if (to == Type::kF16x2 || to == Type::kBf16x2) return ConvertPacked(in, to);
  if (in.operands.size() != 2 || from == Type::kNone || IsPair(from)) return false;
  const Ref source = Read(in.operands[1], from);
  const Ref result = ConvertTo(in, source, from, to);
  const Destination d = Write(in.operands[0], to);
  EmitAlu("mov." + std::string(BitsName(ShiftOf(to))), ShiftOf(to), d.ref, result);
  // The last operation writes the register itself, if it wrote a temporary of the same width.
  const size_t count = out_.code.size();
  if (count >= 2 && out_.code[count - 2].op == Op::kAlu && out_.code[count - 2].d == result &&
      result != source) {
    out_.code.pop_back();
    out_.code.back().d = d.ref;
  }
  Finish(d);
  return true;
}

// cvt.rn.f16x2.f32 d, a, b: a goes to the upper half.
bool Decoder::ConvertPacked(const ptx::Instruction& in, Type to) {
  if (in.operands.size() != 3 || LastType(in) != Type::kF32) return false;
  const Ref high = ConvertTo(in, Read(in.operands[1], Type::kF32), Type::kF32, ElementOf(to));
  const Ref low = ConvertTo(in, Read(in.operands[2], Type::kF32), Type::kF32, ElementOf(to));
  const Destination d = Write(in.operands[0], to);
  EmitAlu("pack.b16", 2, d.ref, low, high);
  Finish(d);
  return true;
}

// To and from pairs of 8-bit floating-point numbers.
bool Decoder::ConvertEight(const ptx::Instruction& in, Type to, Type from) {
  const bool widens = from == Type::kE4m3x2 || from == Type::kE5m2x2;
  const bool two = from == Type::kF32;
  if (widens ? to != Type::kF16x2 : from != Type::kF16x2 && !two) return false;
  if (in.operands.size() != (two ? 3u : 2u)) return false;
  Ref source[2] = {kNoRef, kNoRef};
  for (size_t i = 0; i + 1 < in.operands.size(); ++i) {
    source[i] = Read(in.operands[i + 1], from);
    if (widens || !in.Has(".relu")) continue;
    const Ref positive = Temporary(2);
    EmitAlu("relu." + std::string(NameOf(from)), 2, positive, source[i]);
    source[i] = positive;
  }
  const Destination d = Write(in.operands[0], to);
  EmitAlu("cvt." + std::string(NameOf(to)) + "." + std::string(NameOf(from)), ShiftOf(to), d.ref,
          source[0], source[1]);
  if (widens && in.Has(".relu")) EmitAlu("relu.f16x2", 2, d.ref, d.ref);
  Finish(d);
  return true;
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c.
bool Decoder::PackSaturated(const ptx::Instruction& in) {
  struct Row {
    std::string_view name;
    uint64_t immediate;
  };
  constexpr Row kRows[] = {{".u16", 16}, {".s16", 0x100 | 16}, {".u8", 8}, {".s8", 0x100 | 8},
                           {".u4", 4},   {".s4", 0x100 | 4},   {".u2", 2}, {".s2", 0x100 | 2}};
  const size_t count = in.operands.size();
  if (count != 3 && count != 4) return false;
  uint64_t immediate = 0;
  for (const Row& row : kRows) {
    if (in.Has(row.name)) immediate = row.immediate;
  }
  if (immediate == 0) return false;
  const Ref a = Read(in.operands[1], Type::kS32);
  const Ref b = Read(in.operands[2], Type::kS32);
  const Ref c = count == 4 ? Read(in.operands[3], Type::kB32) : Constant(2, 0);
  const Destination d = Write(in.operands[0], Type::kB32);
  EmitAlu("pack.saturated.b32", 2, d.ref, a, b, c, immediate);
  Finish(d);
  return true;
}

Ref Decoder::ConvertTo(const ptx::Instruction& in, Ref from, Type from_type, Type to_type) {
  if (IsFloat(from_type)) {
    return IsFloat(to_type) ? FloatToFloat(in, from, from_type, to_type)
                            : FloatToInteger(in, from, from_type, to_type);
  }
  if (IsFloat(to_type)) return IntegerToFloat(in, from, from_type, to_type);
  if (!in.Has(".sat")) {
    if (ShiftOf(from_type) == ShiftOf(to_type)) return from;
    const Ref to = Temporary(ShiftOf(to_type));
    EmitAlu(
        "move." + std::to_string(8u << ShiftOf(to_type)) + "." + std::string(SignedName(from_type)),
        ShiftOf(to_type), to, from);
    return to;
  }
  const Ref wide = Resize(from, from_type, 3);
  const Ref to = Temporary(ShiftOf(to_type));
  EmitAlu("clamp." + std::string(SignedName(to_type)) + (IsSigned(from_type) ? ".s64" : ".u64"),
          ShiftOf(to_type), to, wide);
  return to;
}

Ref Decoder::FloatToInteger(const ptx::Instruction& in, Ref from, Type from_type, Type to_type) {
  Type type = from_type;
  if (IsHalf(type)) {
    const Ref single = Temporary(2);
    EmitAlu("cvt.f32." + std::string(NameOf(type)), 2, single, from);
    from = single;
    type = Type::kF32;
  }
  const uint8_t shift = ShiftOf(type);
  const std::string name(NameOf(type));
  const std::string rounding = IntegerRounding(in);
  if (rounding != "rzi" || in.Has(".ftz")) {
    const Ref rounded = Temporary(shift);
    EmitAlu("round." + (rounding.empty() ? "rzi" : rounding) +
                (in.Has(".ftz") && type == Type::kF32 ? ".ftz." : ".") + name,
            shift, rounded, from);
    from = rounded;
  }
  const Ref to = Temporary(ShiftOf(to_type));
  EmitAlu("cvt." + std::string(SignedName(to_type)) + "." + name, ShiftOf(to_type), to, from);
  return to;
}

Ref Decoder::IntegerToFloat(const ptx::Instruction& in, Ref from, Type from_type, Type to_type) {
  // 8- and 16-bit integers are exact in every format but half; extend them to 32 bits.
  Type type = from_type;
  if (ShiftOf(type) < 2) {
    from = Resize(from, type, 2);
    type = IsSigned(from_type) ? Type::kS32 : Type::kU32;
  }
  const std::string source(SignedName(type));
  const std::string rounding = FloatRounding(in);
  if (IsHalf(to_type)) {
    // Wider integers than f64 holds must not be rounded twice.
    const Ref wide = Temporary(3);
    EmitAlu((ShiftOf(type) == 3 ? "cvt.odd.f64." : "cvt.f64.") + source, 3, wide, from);
    const Ref half = Temporary(1);
    EmitAlu("cvt" + rounding + "." + std::string(NameOf(to_type)) + ".f64", 1, half, wide);
    if (in.Has(".sat")) EmitAlu("sat." + std::string(NameOf(to_type)), 1, half, half);
    return half;
  }
  const Ref to = Temporary(ShiftOf(to_type));
  EmitAlu("cvt" + rounding + "." + std::string(NameOf(to_type)) + "." + source, ShiftOf(to_type),
          to, from);
  if (in.Has(".sat")) EmitAlu("sat." + std::string(NameOf(to_type)), ShiftOf(to_type), to, to);
  return to;
}

Ref Decoder::FloatToFloat(const ptx::Instruction& in, Ref from, Type from_type, Type to_type) {
  const std::string integral = IntegerRounding(in);
  const bool flush = in.Has(".ftz");
  const auto apply = [&](const std::string& operation, Type type, Ref source) {
    const Ref to = Temporary(ShiftOf(type));
    EmitAlu(operation, ShiftOf(type), to, source);
    return to;
  };
  Type type = from_type;
  Ref value = from;
  if (IsHalf(type)) {
    if (type == to_type && integral.empty() && !in.Has(".sat")) return from;
    const bool widens = type == Type::kF16 && to_type == Type::kF32;
    value = apply((widens ? "cvt.canonical.f32." : "cvt.f32.") + std::string(NameOf(type)),
                  Type::kF32, value);
    type = Type::kF32;
  }
  if (!integral.empty()) {
    value = apply("round." + integral + (flush && type == Type::kF32 ? ".ftz." : ".") +
                      std::string(NameOf(type)),
                  type, value);
  } else if (flush && type == Type::kF32) {
    value = apply("identity.ftz.f32", type, value);
  }
  if (in.Has(".sat")) value = apply("sat." + std::string(NameOf(type)), type, value);
  if (type != to_type) {
    std::string rounding = FloatRounding(in);
    if (in.Has(".rna")) rounding = ".rna";
    value = apply(
        "cvt" + rounding + "." + std::string(NameOf(to_type)) + "." + std::string(NameOf(type)),
        to_type, value);
    if (flush && to_type == Type::kF32) value = apply("flush.f32", to_type, value);
  }
  for (std::string_view end : {".relu", ".satfinite"}) {
    if (!in.Has(end)) continue;
    value = apply((end == ".relu" ? "relu." : "finite.") + std::string(NameOf(to_type)), to_type,
                  value);
  }
  return value;
}

bool Decoder::ConvertAddress(const ptx::Instruction& in) {
  if (in.operands.size() != 2) return false;
  const Type type = LastType(in);
  if (ShiftOf(type) != 3) return false;
  if (ParseSpace(in) == Space::kShared) return ConvertSharedAddress(in);
  bool to_space = false;
  for (std::string_view modifier : in.modifiers) to_space = to_space || modifier == ".to";
  const uint64_t window = WindowOf(ParseSpace(in));
  const Ref source = Read(in.operands[1], Type::kU64);
  const Destination d = Write(in.operands[0], Type::kU64);
  if (window == 0) {
    EmitAlu("mov.b64", 3, d.ref, source);
  } else {
    EmitAlu("add.b64", 3, d.ref, source, Constant(3, to_space ? -window : window));
  }
  Finish(d);
  return true;
}

bool Decoder::IsSpace(const ptx::Instruction& in) {
  if (in.operands.size() != 2) return false;
  if (ParseSpace(in) == Space::kShared) return IsSharedSpace(in);
  const Ref address = Read(in.operands[1], Type::kU64);
  const Ref d = WritePredicate(in.operands[0]);
  Instruction& out = Emit(Op::kIsSpace);
  out.d = d;
  out.a = address;
  out.extra = static_cast<uint8_t>(ParseSpace(in));
  return true;
}

}  // namespace ops_debug::emulator
