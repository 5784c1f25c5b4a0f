// Decoding of loads, stores, atomics and asynchronous copies.
#include <optional>
#include <string>

#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

Space AccessSpace(const ptx::Instruction& in) {
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".global") return Space::kGlobal;
    if (modifier == ".shared" || modifier == ".shared::cta") return Space::kShared;
    if (modifier == ".shared::cluster") return Space::kSharedCluster;
    if (modifier == ".local") return Space::kLocal;
    if (modifier == ".const") return Space::kConst;
    if (modifier == ".param" || modifier == ".param::entry" || modifier == ".param::func")
      return Space::kParameter;
  }
  return Space::kGeneric;
}

std::optional<AtomicOp> ParseAtomicOp(const ptx::Instruction& in) {
  struct Row {
    std::string_view name;
    AtomicOp operation;
  };
  constexpr Row kRows[] = {
      {".add", AtomicOp::kAdd},       {".min", AtomicOp::kMin},
      {".max", AtomicOp::kMax},       {".and", AtomicOp::kAnd},
      {".or", AtomicOp::kOr},         {".xor", AtomicOp::kXor},
      {".exch", AtomicOp::kExchange}, {".cas", AtomicOp::kCompareSwap},
      {".inc", AtomicOp::kIncrement}, {".dec", AtomicOp::kDecrement},
  };
  for (const Row& row : kRows) {
    if (in.Has(row.name)) return row.operation;
  }
  return std::nullopt;
}

std::optional<ScalarType> AtomicType(Type type) {
  switch (type) {
    case Type::kB16:
      return ScalarType::kB16;
    case Type::kB32:
      return ScalarType::kB32;
    case Type::kB64:
      return ScalarType::kB64;
    case Type::kU16:
      return ScalarType::kU16;
    case Type::kU32:
      return ScalarType::kU32;
    case Type::kU64:
      return ScalarType::kU64;
    case Type::kS32:
      return ScalarType::kS32;
    case Type::kS64:
      return ScalarType::kS64;
    case Type::kF16:
      return ScalarType::kF16;
    case Type::kF16x2:
      return ScalarType::kF16x2;
    case Type::kBf16:
      return ScalarType::kBf16;
    case Type::kBf16x2:
      return ScalarType::kBf16x2;
    case Type::kF32:
      return ScalarType::kF32;
    case Type::kF64:
      return ScalarType::kF64;
    default:
      return std::nullopt;
  }
}

// The operands of a vector, or the operand itself.
std::span<const ptx::Operand> Elements(const ptx::Operand& operand) {
  if (operand.kind == Kind::kVector) return operand.children;
  return {&operand, 1};
}

uint8_t VectorCount(const ptx::Instruction& in) {
  if (in.Has(".v2")) return 2;
  if (in.Has(".v4")) return 4;
  if (in.Has(".v8")) return 8;
  return 1;
}

}  // namespace

// Sets space, offset and address width of `access` and returns the lane array that holds the base
// address.
bool Decoder::ReadAddress(const ptx::Operand& operand, MemoryAccess& access, Ref* address) {
  if (!operand.IsAddress() || operand.children.size() != 1) return false;
  const ptx::Operand& base = operand.children[0];
  access.offset = operand.offset;
  access.address_is_32bit = false;
  switch (base.kind) {
    case Kind::kRegister:
      if (IsPredicate(base.reg) || RegisterShift(base.reg) < 2) return false;
      access.address_is_32bit = RegisterShift(base.reg) == 2;
      *address = RegisterRef(base.reg);
      return true;
    case Kind::kSymbol: {
      const Symbol symbol = FindSymbol(base.text);
      if (symbol.kind == Symbol::Kind::kNone) return false;
      // A generic access names a variable by its address in the variable's own space.
      if (access.space == Space::kGeneric) {
        if (symbol.kind == Symbol::Kind::kShared) access.space = Space::kShared;
        if (symbol.kind == Symbol::Kind::kLocal) access.space = Space::kLocal;
        if (symbol.kind == Symbol::Kind::kAddress) access.space = Space::kGlobal;
      }
      *address = SymbolAddress(symbol, base.offset, 3);
      return true;
    }
    case Kind::kImmediate:
      *address = Constant(3, static_cast<uint64_t>(base.value));
      return true;
    default:
      return false;
  }
}

void Decoder::ReadQualifiers(const ptx::Instruction& in, MemoryAccess& access) {
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".volatile" || modifier == ".relaxed" || modifier == ".mmio")
      access.strong = true;
    if (modifier == ".acquire" || modifier == ".acq_rel") access.strong = access.acquire = true;
    if (modifier == ".release" || modifier == ".acq_rel") access.strong = access.release = true;
    if (modifier == ".cta") access.block_scope = true;
    if (modifier == ".volatile" || modifier == ".mmio") access.is_volatile = true;
    if (modifier == ".cta") access.scope = MemoryScope::kBlock;
    if (modifier == ".cluster") access.scope = MemoryScope::kCluster;
    if (modifier == ".sys") access.scope = MemoryScope::kSystem;
  }
  if (access.is_volatile) access.scope = MemoryScope::kSystem;
}

bool Decoder::Load(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() < 2 || !in.operands[1].IsAddress() || in.operands[1].children.empty())
    return false;
  const auto elements = Elements(in.operands[0]);
  if (elements.size() > 8 || elements.size() != VectorCount(in) || type == Type::kNone ||
      type == Type::kPred)
    return false;
  MemoryAccess access;
  access.space = AccessSpace(in);
  access.element_shift = ShiftOf(type);
  access.count = static_cast<uint8_t>(elements.size());
  access.sign_extend = IsSigned(type);
  ReadQualifiers(in, access);
  bool have_width = false;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].kind == Kind::kSink) {
      access.registers[i] = kNoRef;
      continue;
    }
    if (!elements[i].IsRegister() || IsPredicate(elements[i].reg)) return false;
    const uint8_t shift = RegisterShift(elements[i].reg);
    if (shift < access.element_shift || (have_width && shift != access.register_shift))
      return false;
    access.register_shift = shift;
    have_width = true;
    access.registers[i] = RegisterRef(elements[i].reg);
  }
  if (!have_width) access.register_shift = access.element_shift;
  if (access.register_shift != access.element_shift) {
    access.resize = lanes_.FindAlu(
        "move." + std::to_string(8u << access.register_shift) + "." +
        std::string(SignedName(IsInteger(type) ? type : BitsType(access.element_shift))));
  }

  const ptx::Operand& base = in.operands[1].children[0];
  if (base.kind == Kind::kSymbol) {
    const Symbol symbol = FindSymbol(base.text);
    const int64_t offset = base.offset + in.operands[1].offset;
    const bool inside =
        offset >= 0 && static_cast<uint64_t>(offset) + access.access_bytes() <= symbol.size_bytes &&
        offset % access.access_bytes() == 0;
    if (access.space == Space::kParameter && symbol.kind == Symbol::Kind::kKernelParameter) {
      auto* owned = Own(out_.accesses);
      *owned = access;
      Instruction& out = Emit(Op::kLoadParameter);
      out.fn.access = owned;
      out.immediate = symbol.value + static_cast<uint64_t>(offset);
      return true;
    }
    if (symbol.kind == Symbol::Kind::kLocal && access.space == Space::kParameter) {
      access.offset = static_cast<int64_t>(symbol.value) + offset;
      auto* owned = Own(out_.accesses);
      *owned = access;
      Emit(Op::kLoadFrame).fn.access = owned;
      return true;
    }
    if (symbol.kind == Symbol::Kind::kAddress && inside && !access.strong &&
        (symbol.value + static_cast<uint64_t>(offset)) % access.access_bytes() == 0) {
      auto* owned = Own(out_.accesses);
      *owned = access;
      Instruction& out = Emit(Op::kLoadUniform);
      out.fn.access = owned;
      out.immediate = symbol.value + static_cast<uint64_t>(offset);
      return true;
    }
  }
  Ref address = 0;
  if (!ReadAddress(in.operands[1], access, &address)) return false;
  // The parameter of a device function whose address was taken lives in local memory.
  if (access.space == Space::kParameter && !source_.is_entry) access.space = Space::kLocal;
  auto* owned = Own(out_.accesses);
  *owned = access;
  Instruction& out = Emit(Op::kLoad);
  out.a = address;
  out.fn.access = owned;
  return true;
}

bool Decoder::Store(const ptx::Instruction& in) {
  if (in.Has(".async")) return StoreAsync(in);
  if (in.Has(".bulk")) return false;
  const Type type = LastType(in);
  if (in.operands.size() < 2 || !in.operands[0].IsAddress() || in.operands[0].children.empty())
    return false;
  const auto elements = Elements(in.operands[1]);
  if (elements.size() > 8 || elements.size() != VectorCount(in) || type == Type::kNone ||
      type == Type::kPred)
    return false;
  MemoryAccess access;
  access.space = AccessSpace(in);
  access.element_shift = ShiftOf(type);
  access.count = static_cast<uint8_t>(elements.size());
  ReadQualifiers(in, access);
  // Wider registers are truncated by the store itself; immediates take the width of the others.
  access.register_shift = access.element_shift;
  for (const ptx::Operand& element : elements) {
    if (element.IsRegister() && !IsPredicate(element.reg) &&
        RegisterShift(element.reg) > access.register_shift) {
      access.register_shift = RegisterShift(element.reg);
    }
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].kind == Kind::kImmediate && access.register_shift == access.element_shift) {
      access.registers[i] = Read(elements[i], type);
    } else {
      access.registers[i] = ReadBits(elements[i], access.register_shift);
    }
  }
  if (access.register_shift != access.element_shift) {
    access.resize = lanes_.FindAlu("move." + std::to_string(8u << access.element_shift) + "." +
                                   std::string(SignedName(BitsType(access.register_shift))));
  }
  const ptx::Operand& base = in.operands[0].children[0];
  if (access.space == Space::kParameter) {
    if (base.kind != Kind::kSymbol) return false;
    const Symbol symbol = FindSymbol(base.text);
    if (symbol.kind != Symbol::Kind::kLocal) return false;
    access.offset = static_cast<int64_t>(symbol.value) + base.offset + in.operands[0].offset;
    auto* owned = Own(out_.accesses);
    *owned = access;
    Emit(Op::kStoreFrame).fn.access = owned;
    return true;
  }
  Ref address = 0;
  if (!ReadAddress(in.operands[0], access, &address)) return false;
  auto* owned = Own(out_.accesses);
  *owned = access;
  Instruction& out = Emit(Op::kStore);
  out.a = address;
  out.fn.access = owned;
  return true;
}

// atom.exch.b128 and atom.cas.b128; .b128 registers have become pairs {low, high}.
bool Decoder::AtomicWide(const ptx::Instruction& in) {
  const auto operation = ParseAtomicOp(in);
  const bool is_cas = operation == AtomicOp::kCompareSwap;
  if (in.opcode != "atom" || (!is_cas && operation != AtomicOp::kExchange)) return false;
  if (in.operands.size() < (is_cas ? 4u : 3u)) return false;
  AtomicAccess access;
  access.operation = *operation;
  access.type = ScalarType::kB128;
  access.memory.space = AccessSpace(in);
  access.memory.element_shift = 3;
  access.memory.register_shift = 3;
  access.memory.count = 2;
  ReadQualifiers(in, access.memory);
  access.memory.strong = true;
  Ref address = 0;
  if (!ReadAddress(in.operands[1], access.memory, &address)) return false;
  const auto read = [&](const ptx::Operand& pair, Ref* low, Ref* high) {
    if (pair.kind != Kind::kVector || pair.children.size() != 2) return false;
    *low = ReadBits(pair.children[0], 3);
    *high = ReadBits(pair.children[1], 3);
    return true;
  };
  if (!read(in.operands[2], &access.operand[0], &access.operand[1])) return false;
  if (is_cas && !read(in.operands[3], &access.swap, &access.swap_high)) return false;
  const auto results = Elements(in.operands[0]);
  if (in.operands[0].kind != Kind::kSink && results.size() != 2) return false;
  for (size_t k = 0; k < 2; ++k) {
    const bool is_used = results.size() == 2 && results[k].IsRegister();
    access.memory.registers[k] = is_used ? RegisterRef(results[k].reg) : kNoRef;
  }
  auto* owned = Own(out_.atomics);
  *owned = access;
  Instruction& out = Emit(Op::kAtomic);
  out.a = address;
  out.fn.atomic = owned;
  return true;
}

bool Decoder::Atomic(const ptx::Instruction& in) {
  if (in.Has(".async")) return StoreAsync(in);
  if (in.Has(".b128")) return AtomicWide(in);
  const bool is_red = in.opcode == "red";
  const Type type = LastType(in);
  const auto operation = ParseAtomicOp(in);
  const auto scalar = AtomicType(type);
  if (in.Has(".async") || !operation || !scalar) return false;
  const size_t first = is_red ? 0 : 1;  // of the address
  const bool is_cas = *operation == AtomicOp::kCompareSwap;
  if (in.operands.size() < first + (is_cas ? 3 : 2)) return false;
  AtomicAccess access;
  access.operation = *operation;
  access.type = *scalar;
  access.memory.space = AccessSpace(in);
  access.memory.element_shift = ShiftOf(type);
  access.memory.register_shift = ShiftOf(type);
  access.memory.count = VectorCount(in);
  ReadQualifiers(in, access.memory);
  access.memory.strong = true;
  Ref address = 0;
  if (!ReadAddress(in.operands[first], access.memory, &address)) return false;
  const auto sources = Elements(in.operands[first + 1]);
  if (sources.size() != access.memory.count) return false;
  Destination destinations[8];
  for (size_t i = 0; i < sources.size(); ++i) {
    access.operand[i] = Read(sources[i], type);
    access.memory.registers[i] = kNoRef;
  }
  if (is_cas) access.swap = Read(in.operands[first + 2], type);
  if (!is_red) {
    const auto results = Elements(in.operands[0]);
    if (results.size() != sources.size()) return false;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].kind == Kind::kSink) continue;
      destinations[i] = Write(results[i], type);
      access.memory.registers[i] = destinations[i].ref;
    }
  }
  auto* owned = Own(out_.atomics);
  *owned = access;
  Instruction& out = Emit(Op::kAtomic);
  out.a = address;
  out.fn.atomic = owned;
  for (const Destination& destination : destinations) Finish(destination);
  return true;
}

}  // namespace ops_debug::emulator
