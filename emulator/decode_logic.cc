// Decoding of bit operations, comparisons and selection.
#include <string>

#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

std::string Key(std::string_view operation, std::string_view type) {
  std::string key(operation);
  key += '.';
  key += type;
  return key;
}

// The relation of set and setp without its dot; empty if there is none.
std::string_view Relation(const ptx::Instruction& in) {
  for (std::string_view modifier : in.modifiers) {
    for (std::string_view known :
         {".eq", ".ne", ".lt", ".le", ".gt", ".ge", ".lo", ".ls", ".hi", ".hs", ".equ", ".neu",
          ".ltu", ".leu", ".gtu", ".geu", ".num", ".nan"}) {
      if (modifier == known) return known.substr(1);
    }
  }
  return {};
}

// .lo .ls .hi .hs are the unsigned spellings.
std::string_view PlainRelation(std::string_view relation) {
  if (relation == "lo") return "lt";
  if (relation == "ls") return "le";
  if (relation == "hi") return "gt";
  if (relation == "hs") return "ge";
  return relation;
}

// How set and setp combine a relation with a predicate.
PredicateOp CombineOf(const ptx::Instruction& in) {
  if (in.Has(".or")) return PredicateOp::kOr;
  return in.Has(".xor") ? PredicateOp::kXor : PredicateOp::kAnd;
}

}  // namespace

bool Decoder::Logic(const ptx::Instruction& in) {
  const Type type = LastType(in);
  const bool unary = in.opcode == "not" || in.opcode == "cnot";
  if (in.operands.size() != (unary ? 2u : 3u)) return false;
  if (type == Type::kPred) {
    const Ref a = ReadPredicate(in.operands[1]);
    const Ref b = unary ? a : ReadPredicate(in.operands[2]);
    PredicateOp operation = PredicateOp::kNot;
    if (in.opcode == "and") operation = PredicateOp::kAnd;
    if (in.opcode == "or") operation = PredicateOp::kOr;
    if (in.opcode == "xor") operation = PredicateOp::kXor;
    EmitPredicate(operation, WritePredicate(in.operands[0]), a, b);
    return true;
  }
  const Ref a = Read(in.operands[1], type);
  const Ref b = unary ? kNoRef : Read(in.operands[2], type);
  const Destination d = Write(in.operands[0], type);
  EmitAlu(Key(in.opcode, BitsName(ShiftOf(type))), ShiftOf(type), d.ref, a, b);
  Finish(d);
  return true;
}

bool Decoder::Shift(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 3) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref amount = Read(in.operands[2], Type::kU32);
  const Destination d = Write(in.operands[0], type);
  EmitAlu(in.opcode == "shl" ? Key("shl", BitsName(ShiftOf(type))) : Key("shr", SignedName(type)),
          ShiftOf(type), d.ref, a, amount);
  Finish(d);
  return true;
}

bool Decoder::BitCount(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 2) return false;
  const Ref a = Read(in.operands[1], type);
  const Type result = in.opcode == "brev" ? type : Type::kU32;
  const Destination d = Write(in.operands[0], result);
  std::string operation(in.opcode);
  if (in.Has(".shiftamt")) operation += ".shiftamt";
  EmitAlu(Key(operation, NameOf(type)), ShiftOf(result), d.ref, a);
  Finish(d);
  return true;
}

bool Decoder::BitField(const ptx::Instruction& in) {
  const Type type = LastType(in);
  const size_t count = in.operands.size();
  std::string operation(in.opcode);
  if (in.Has(".clamp")) operation += ".clamp";
  if (in.Has(".wrap")) operation += ".wrap";
  if (in.opcode == "bfi") {
    if (count != 5) return false;
    const Ref a = Read(in.operands[1], type);
    const Ref b = Read(in.operands[2], type);
    const Ref field = Temporary(2);
    EmitAlu(ShiftOf(type) == 3 ? "pack.field.b64" : "pack.field.b32", 2, field,
            Read(in.operands[3], Type::kU32), Read(in.operands[4], Type::kU32));
    const Destination d = Write(in.operands[0], type);
    EmitAlu(Key("bfi", BitsName(ShiftOf(type))), ShiftOf(type), d.ref, a, b, field);
    Finish(d);
    return true;
  }
  if (count < 3 || count > 4) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], Type::kU32);
  const Ref c = count == 4 ? Read(in.operands[3], Type::kU32) : kNoRef;
  const Destination d = Write(in.operands[0], type);
  EmitAlu(Key(operation, NameOf(type)), ShiftOf(type), d.ref, a, b, c);
  Finish(d);
  return true;
}

bool Decoder::Lop3(const ptx::Instruction& in) {
  // lop3.and.b32 d|p, a, b, c, table, q: p = (d != 0) and q.
  const ptx::Operand& result = in.operands[0];
  const bool combine = result.kind == ptx::Operand::Kind::kPair;
  if (in.operands.size() != (combine ? 6u : 5u)) return false;
  const Ref a = Read(in.operands[1], Type::kB32);
  const Ref b = Read(in.operands[2], Type::kB32);
  const Ref c = Read(in.operands[3], Type::kB32);
  if (in.operands[4].kind != ptx::Operand::Kind::kImmediate) return false;
  const Ref q = combine ? ReadPredicate(in.operands[5]) : kNoRef;
  const Destination d = Write(combine ? result.children[0] : result, Type::kB32);
  EmitAlu("lop3.b32", 2, d.ref, a, b, c, static_cast<uint64_t>(in.operands[4].value));
  if (combine) {
    const Ref nonzero = TemporaryPredicate();
    EmitCompare("ne.b32", nonzero, d.ref, Constant(2, 0));
    EmitPredicate(in.Has(".or") ? PredicateOp::kOr : PredicateOp::kAnd,
                  WritePredicate(result.children[1]), nonzero, q);
  }
  Finish(d);
  return true;
}

bool Decoder::Permute(const ptx::Instruction& in) {
  if (in.operands.size() != 4) return false;
  const Ref a = Read(in.operands[1], Type::kB32);
  const Ref b = Read(in.operands[2], Type::kB32);
  const Ref c = Read(in.operands[3], Type::kB32);
  const Destination d = Write(in.operands[0], Type::kB32);
  uint64_t mode = 0;
  uint64_t number = 0;
  for (std::string_view name : {".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"}) {
    ++number;
    if (in.Has(name)) mode = number;
  }
  EmitAlu(mode == 0 ? "prmt.b32" : "prmt.mode.b32", 2, d.ref, a, b, c, mode);
  Finish(d);
  return true;
}

bool Decoder::FunnelShift(const ptx::Instruction& in) {
  if (in.operands.size() != 4) return false;
  const Ref a = Read(in.operands[1], Type::kB32);
  const Ref b = Read(in.operands[2], Type::kB32);
  const Ref c = Read(in.operands[3], Type::kB32);
  const Destination d = Write(in.operands[0], Type::kB32);
  std::string key = in.Has(".l") ? "shf.l" : "shf.r";
  key += in.Has(".clamp") ? ".clamp.b32" : ".wrap.b32";
  EmitAlu(key, 2, d.ref, a, b, c);
  Finish(d);
  return true;
}

void Decoder::Compare(const ptx::Instruction& in, Type type, Ref d, Ref a, Ref b) {
  const std::string_view written = Relation(in);
  const std::string_view relation = PlainRelation(written);
  if (written.empty()) {
    supported_ = false;
    return;
  }
  if (IsHalf(type)) {
    const Ref x = Temporary(2);
    const Ref y = Temporary(2);
    const std::string key = Key("cvt.f32", NameOf(type));
    if (in.Has(".ftz") && type == Type::kF16) {
      const Ref p = Temporary(1);
      const Ref q = Temporary(1);
      EmitAlu("flush.f16", 1, p, a);
      EmitAlu("flush.f16", 1, q, b);
      a = p;
      b = q;
    }
    EmitAlu(key, 2, x, a);
    EmitAlu(key, 2, y, b);
    EmitCompare(Key(relation, "f32"), d, x, y);
    return;
  }
  if (type == Type::kF32 && in.Has(".ftz")) {
    const Ref x = Temporary(2);
    const Ref y = Temporary(2);
    EmitAlu("flush.f32", 2, x, a);
    EmitAlu("flush.f32", 2, y, b);
    a = x;
    b = y;
  }
  if (IsFloat(type)) {
    EmitCompare(Key(relation, NameOf(type)), d, a, b);
  } else if (relation == "eq" || relation == "ne") {
    EmitCompare(Key(relation, BitsName(ShiftOf(type))), d, a, b);
  } else {
    EmitCompare(Key(relation, SignedName(relation == written ? type : BitsType(ShiftOf(type)))), d,
                a, b);
  }
}

bool Decoder::SetPredicate(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() < 3 || type == Type::kNone) return false;
  const ptx::Operand& result = in.operands[0];
  const bool pair = result.kind == ptx::Operand::Kind::kPair;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  const bool combine = in.Has(".and") || in.Has(".or") || in.Has(".xor");
  if (IsPair(type)) {
    // Packed halves: p from the low ones, q from the high ones.
    if (!pair || type == Type::kU16x2 || type == Type::kS16x2) return false;
    if (combine && in.operands.size() != 4) return false;
    const Ref source = combine ? ReadPredicate(in.operands[3]) : kNoRef;
    const Ref p = TemporaryPredicate();
    const Ref q = TemporaryPredicate();
    for (bool high : {false, true}) {
      const Ref x = Temporary(1);
      const Ref y = Temporary(1);
      EmitAlu(high ? "unpack.high.b16" : "unpack.low.b16", 1, x, a);
      EmitAlu(high ? "unpack.high.b16" : "unpack.low.b16", 1, y, b);
      Compare(in, ElementOf(type), high ? q : p, x, y);
      if (combine) EmitPredicate(CombineOf(in), high ? q : p, high ? q : p, source);
    }
    EmitPredicate(PredicateOp::kMove, WritePredicate(result.children[0]), p);
    EmitPredicate(PredicateOp::kMove, WritePredicate(result.children[1]), q);
    return true;
  }
  if (!pair && !combine) {
    Compare(in, type, WritePredicate(result), a, b);
    return true;
  }
  const Ref relation = TemporaryPredicate();
  Compare(in, type, relation, a, b);
  Ref source = PredicateConstant(true);
  if (combine) {
    if (in.operands.size() != 4) return false;
    source = ReadPredicate(in.operands[3]);
  }
  Instruction& out = Emit(Op::kCompareCombine);
  out.a = relation;
  out.c = source;
  out.extra = static_cast<uint8_t>(CombineOf(in));
  out.d = WritePredicate(pair ? result.children[0] : result);
  out.q = pair ? WritePredicate(result.children[1]) : kNoRef;
  return true;
}

// set.relation.result-type.source-type: the predicate as a value.
bool Decoder::Set(const ptx::Instruction& in) {
  const Type result = TypeModifier(in, 0);
  const Type type = LastType(in);
  if (in.operands.size() < 3 || result == Type::kNone) return false;
  const bool combine = in.Has(".and") || in.Has(".or") || in.Has(".xor");
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  if (combine && in.operands.size() != 4) return false;
  const Ref extra = combine ? ReadPredicate(in.operands[3]) : kNoRef;
  const auto combined = [&](Ref relation) {
    if (!combine) return;
    EmitPredicate(CombineOf(in), relation, relation, extra);
  };
  const auto yes = [](Type t) -> uint64_t {
    if (t == Type::kF32) return 0x3f800000u;
    if (t == Type::kF16) return 0x3c00;
    if (t == Type::kBf16) return 0x3f80;
    return ~0ull;
  };
  const Destination d = Write(in.operands[0], result);
  if (IsPair(type)) {
    const Type half = IsPair(result) ? ElementOf(result) : Type::kU16;
    Ref parts[2];
    for (int high = 0; high < 2; ++high) {
      const Ref x = Temporary(1);
      const Ref y = Temporary(1);
      EmitAlu(high != 0 ? "unpack.high.b16" : "unpack.low.b16", 1, x, a);
      EmitAlu(high != 0 ? "unpack.high.b16" : "unpack.low.b16", 1, y, b);
      const Ref relation = TemporaryPredicate();
      Compare(in, ElementOf(type), relation, x, y);
      combined(relation);
      parts[high] = Temporary(1);
      EmitSelect(1, parts[high], Constant(1, yes(half)), Constant(1, 0), relation);
    }
    EmitAlu("pack.b16", 2, d.ref, parts[0], parts[1]);
  } else {
    const Ref relation = TemporaryPredicate();
    Compare(in, type, relation, a, b);
    combined(relation);
    const uint8_t shift = ShiftOf(result);
    EmitSelect(shift, d.ref, Constant(shift, yes(result)), Constant(shift, 0), relation);
  }
  Finish(d);
  return true;
}

bool Decoder::Select(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 4) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  const Ref predicate = ReadPredicate(in.operands[3]);
  const Destination d = Write(in.operands[0], type);
  EmitSelect(ShiftOf(type), d.ref, a, b, predicate);
  Finish(d);
  return true;
}

bool Decoder::Slct(const ptx::Instruction& in) {
  const Type type = TypeModifier(in, 0);
  const Type condition = TypeModifier(in, 1);
  if (in.operands.size() != 4) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = Read(in.operands[2], type);
  Ref c = Read(in.operands[3], condition);
  if (in.Has(".ftz")) {
    const Ref flushed = Temporary(2);
    EmitAlu("flush.f32", 2, flushed, c);
    c = flushed;
  }
  const Destination d = Write(in.operands[0], type);
  EmitAlu("slct." + std::string(BitsName(ShiftOf(type))) + "." + std::string(NameOf(condition)),
          ShiftOf(type), d.ref, a, b, c);
  Finish(d);
  return true;
}

bool Decoder::TestProperty(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 2 || in.modifiers.empty()) return false;
  const Ref a = Read(in.operands[1], type);
  EmitCompare(Key(in.modifiers[0].substr(1), NameOf(type)), WritePredicate(in.operands[0]), a, a);
  return true;
}

}  // namespace ops_debug::emulator
