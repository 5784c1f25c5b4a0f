// Decoding of integer and floating-point arithmetic.
#include <string>

#include "emulator/checks/definedness_flow.h"
#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

std::string Join(std::string_view operation, std::string_view type) {
  std::string key(operation);
  key += '.';
  key += type;
  return key;
}

// ".rz", ".rm", ".rp" or nothing for nearest even.
std::string RoundingSuffix(const ptx::Instruction& in) {
  for (std::string_view mode : {".rz", ".rm", ".rp"}) {
    if (in.Has(mode)) return std::string(mode);
  }
  return {};
}

std::string IntegerBits(Type type) { return std::string(BitsName(ShiftOf(type))); }

}  // namespace

// `operation` of an f32, f64 or half type with its rounding, .ftz and .sat.
bool Decoder::FloatOperation(const ptx::Instruction& in, std::string operation, Type type,
                             size_t sources) {
  if (in.operands.size() != sources + 1) return false;
  const bool flush = in.Has(".ftz");
  Ref s[3] = {kNoRef, kNoRef, kNoRef};
  for (size_t i = 0; i < sources; ++i) s[i] = Read(in.operands[i + 1], type);
  const Destination d = Write(in.operands[0], type);
  const std::string name(NameOf(type));
  const uint8_t shift = ShiftOf(type);
  if (IsHalf(type)) {
    const bool is_f16 = ElementOf(type) == Type::kF16;
    if (flush && is_f16) {
      for (size_t i = 0; i < sources; ++i) {
        const Ref flushed = Temporary(shift);
        EmitAlu("flush." + name, shift, flushed, s[i]);
        s[i] = flushed;
      }
    }
    EmitAlu(Join(operation, name), shift, d.ref, s[0], s[1], s[2]);
    if (flush && is_f16) EmitAlu("flush." + name, shift, d.ref, d.ref);
    if (in.Has(".relu")) EmitAlu("relu." + name, shift, d.ref, d.ref);
  } else {
    operation += RoundingSuffix(in);
    if (flush && (type == Type::kF32 || type == Type::kF32x2)) operation += ".ftz";
    EmitAlu(Join(operation, name), shift, d.ref, s[0], s[1], s[2]);
  }
  if (in.Has(".sat")) EmitAlu("sat." + name, shift, d.ref, d.ref);
  Finish(d);
  return true;
}

bool Decoder::Carry(const ptx::Instruction& in, std::string key, bool carry_in, bool carry_out,
                    size_t sources) {
  const Type type = LastType(in);
  if (in.operands.size() != sources + 1) return false;
  Instruction use;
  use.a = Read(in.operands[1], type);
  use.b = Read(in.operands[2], type);
  use.c = sources == 3 ? Read(in.operands[3], type) : kNoRef;
  const Destination d = Write(in.operands[0], type);
  Instruction& out = Emit(Op::kCarry);
  out.fn.carry = lanes_.FindCarry(key);
  out.flow = static_cast<uint8_t>(FlowOf(key));
  if (out.fn.carry == nullptr) return false;
  out.a = use.a;
  out.b = use.b;
  out.c = use.c;
  out.d = d.ref;
  out.q = carry_flag_;
  out.width = ShiftOf(type);
  out.extra = static_cast<uint8_t>((carry_in ? 1 : 0) | (carry_out ? 2 : 0));
  Finish(d);
  return true;
}

bool Decoder::AddSub(const ptx::Instruction& in) {
  const Type type = LastType(in);
  const bool is_add = in.opcode.starts_with("add");
  if (in.operands.size() != 3 || type == Type::kNone) return false;
  const bool with_carry = in.opcode.ends_with("c");
  if (with_carry || in.Has(".cc")) {
    return Carry(in, Join(is_add ? "addc" : "subc", IntegerBits(type)), with_carry, in.Has(".cc"),
                 2);
  }
  const std::string operation(is_add ? "add" : "sub");
  if (IsFloat(type)) {
    if (TypeModifier(in, 1) != Type::kNone) return MixedPrecision(in, operation);
    return FloatOperation(in, operation, type, 2);
  }
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  const Destination d = Write(in.operands[0], type);
  std::string key;
  if (IsPair(type)) {
    key = Join(operation, "b16x2");
  } else if (in.Has(".sat")) {
    key = Join(operation + ".sat", NameOf(type));
  } else {
    key = Join(operation, IntegerBits(type));
  }
  EmitAlu(key, ShiftOf(type), d.ref, a, b);
  Finish(d);
  return true;
}

bool Decoder::Multiply(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (IsFloat(type)) return FloatOperation(in, "mul", type, 2);
  if (in.operands.size() != 3) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  if (in.Has(".wide")) {
    if (ShiftOf(type) > 2) return false;
    const Type wide = IsSigned(type) ? (type == Type::kS16 ? Type::kS32 : Type::kS64)
                                     : (ShiftOf(type) == 1 ? Type::kU32 : Type::kU64);
    const Destination d = Write(in.operands[0], wide);
    EmitAlu(Join("mul.wide", SignedName(type)), ShiftOf(wide), d.ref, a, b);
    Finish(d);
    return true;
  }
  const Destination d = Write(in.operands[0], type);
  EmitAlu(in.Has(".hi") ? Join("mul.hi", SignedName(type)) : Join("mul.lo", IntegerBits(type)),
          ShiftOf(type), d.ref, a, b);
  Finish(d);
  return true;
}

bool Decoder::MultiplyAdd(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (IsFloat(type)) return FloatOperation(in, "fma", type, 3);
  if (in.operands.size() != 4) return false;
  const bool high = in.Has(".hi");
  if (in.opcode == "madc" || in.Has(".cc")) {
    return Carry(in, high ? Join("madc.hi", SignedName(type)) : Join("madc.lo", IntegerBits(type)),
                 in.opcode == "madc", in.Has(".cc"), 3);
  }
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  if (in.Has(".wide")) {
    if (ShiftOf(type) > 2) return false;
    const Type wide = IsSigned(type) ? (type == Type::kS16 ? Type::kS32 : Type::kS64)
                                     : (ShiftOf(type) == 1 ? Type::kU32 : Type::kU64);
    const Ref c = Read(in.operands[3], wide);
    const Destination d = Write(in.operands[0], wide);
    EmitAlu(Join("mad.wide", SignedName(type)), ShiftOf(wide), d.ref, a, b, c);
    Finish(d);
    return true;
  }
  const Ref c = Read(in.operands[3], type);
  const Destination d = Write(in.operands[0], type);
  std::string key = Join("mad.lo", IntegerBits(type));
  if (high) key = Join(in.Has(".sat") ? "mad.hi.sat" : "mad.hi", SignedName(type));
  EmitAlu(key, ShiftOf(type), d.ref, a, b, c);
  Finish(d);
  return true;
}

bool Decoder::FusedMultiplyAdd(const ptx::Instruction& in) {
  if (TypeModifier(in, 1) != Type::kNone) return MixedPrecision(in, "fma");
  // .oob: the NaN that a tensor copy writes for elements outside the tensor makes the result 0.
  return FloatOperation(in, in.Has(".oob") ? "fma.oob" : "fma", LastType(in), 3);
}

bool Decoder::Divide(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (IsFloat(type)) return FloatOperation(in, in.Has(".approx") ? "div.approx" : "div", type, 2);
  return IntegerSimple(in);
}

// add.f32.bf16 d, a, c: the operands of the narrow type are widened, which is exact.
bool Decoder::MixedPrecision(const ptx::Instruction& in, std::string operation) {
  const Type wide = TypeModifier(in, 0);
  const Type narrow = TypeModifier(in, 1);
  const size_t sources = operation == "fma" ? 3 : 2;
  if (wide != Type::kF32 || !IsHalf(narrow) || IsPair(narrow) || in.operands.size() != sources + 1)
    return false;
  Ref s[3] = {kNoRef, kNoRef, kNoRef};
  for (size_t i = 0; i + 1 < sources; ++i) {
    s[i] = Temporary(2);
    EmitAlu(Join("cvt.f32", NameOf(narrow)), 2, s[i], Read(in.operands[i + 1], narrow));
  }
  s[sources - 1] = Read(in.operands[sources], wide);
  const Destination d = Write(in.operands[0], wide);
  EmitAlu(operation + RoundingSuffix(in) + ".f32", 2, d.ref, s[0], s[1], s[2]);
  if (in.Has(".sat")) EmitAlu("sat.f32", 2, d.ref, d.ref);
  Finish(d);
  return true;
}

bool Decoder::MinMax(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 3 && in.operands.size() != 4) return false;
  const uint8_t shift = ShiftOf(type);
  if (IsFloat(type)) {
    std::string key(in.opcode);
    if (in.Has(".NaN")) key += ".NaN";
    if (in.Has(".xorsign")) key += ".xorsign";
    if (in.Has(".xorsign") && in.operands.size() == 4) return false;
    const std::string name(NameOf(type));
    const bool flush = in.Has(".ftz") && (type == Type::kF32 || ElementOf(type) == Type::kF16);
    Ref values[3];
    for (size_t i = 0; i + 1 < in.operands.size(); ++i) {
      values[i] = Read(in.operands[i + 1], type);
      if (!flush) continue;
      const Ref flushed = Temporary(shift);
      EmitAlu("flush." + name, shift, flushed, values[i]);
      values[i] = flushed;
    }
    const Destination d = Write(in.operands[0], type);
    Ref first = values[0];
    for (size_t i = 1; i + 1 < in.operands.size(); ++i) {
      const Ref to = i + 2 == in.operands.size() ? d.ref : Temporary(shift);
      EmitAlu(Join(key, name), shift, to, first, values[i]);
      first = to;
    }
    Finish(d);
    return true;
  }
  if (in.operands.size() != 3) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  const Destination d = Write(in.operands[0], type);
  EmitAlu(Join(in.opcode, SignedName(type)), ShiftOf(type), d.ref, a, b);
  if (in.Has(".relu")) {
    if (type == Type::kS16x2) {
      EmitAlu("relu.s16x2", 2, d.ref, d.ref);
    } else if (type == Type::kS32) {
      EmitAlu("max.s32", 2, d.ref, d.ref, Constant(2, 0));
    } else {
      return false;
    }
  }
  Finish(d);
  return true;
}

bool Decoder::NegateAbs(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (IsFloat(type)) return FloatOperation(in, std::string(in.opcode), type, 1);
  if (in.operands.size() != 2) return false;
  const Ref a = Read(in.operands[1], type);
  const Destination d = Write(in.operands[0], type);
  EmitAlu(Join(in.opcode, NameOf(type)), ShiftOf(type), d.ref, a);
  Finish(d);
  return true;
}

bool Decoder::FloatFunction(const ptx::Instruction& in) {
  const Type type = LastType(in);
  std::string operation(in.opcode);
  // The approximations of f64 work on the operand's upper word alone (PTX ISA 9.0, 9.7.3.14).
  if (type == Type::kF64 && in.Has(".approx") && in.Has(".ftz")) operation += ".approx.ftz";
  if (IsHalf(type) && ElementOf(type) == Type::kBf16 && in.Has(".ftz")) operation += ".ftz";
  return FloatOperation(in, operation, type, 1);
}

bool Decoder::CopySign(const ptx::Instruction& in) {
  return FloatOperation(in, "copysign", LastType(in), 2);
}

// rem, div, sad, mul24, mad24, dp4a, dp2a: the name and its types are the key.
bool Decoder::IntegerSimple(const ptx::Instruction& in) {
  const Type type = TypeModifier(in, 0);
  const bool is_ternary = in.opcode == "sad" || in.opcode == "mad24" || in.opcode.starts_with("dp");
  const size_t sources = is_ternary ? 3 : 2;
  if (in.operands.size() != sources + 1) return false;
  std::string key(in.opcode);
  if (in.Has(".lo")) key += ".lo";
  if (in.Has(".hi")) key += ".hi";
  if (in.Has(".sat")) key += ".sat";
  key += '.';
  key += SignedName(type);
  if (in.opcode.starts_with("dp")) key += "." + std::string(NameOf(TypeModifier(in, 1)));
  Ref s[3] = {kNoRef, kNoRef, kNoRef};
  for (size_t i = 0; i < sources; ++i) s[i] = Read(in.operands[i + 1], type);
  const Destination d = Write(in.operands[0], type);
  EmitAlu(key, ShiftOf(type), d.ref, s[0], s[1], s[2]);
  Finish(d);
  return true;
}

}  // namespace ops_debug::emulator
