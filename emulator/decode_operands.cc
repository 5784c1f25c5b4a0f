// Operands of the decoder: registers, immediates, symbols and special registers become references
// to lane arrays.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/checks/definedness_flow.h"
#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

struct SpecialName {
  std::string_view name;
  Special special;
  uint8_t shift;
};
constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::kTidX, 2},
    {"%tid.y", Special::kTidY, 2},
    {"%tid.z", Special::kTidZ, 2},
    {"%ntid.x", Special::kNtidX, 2},
    {"%ntid.y", Special::kNtidY, 2},
    {"%ntid.z", Special::kNtidZ, 2},
    {"%ctaid.x", Special::kCtaidX, 2},
    {"%ctaid.y", Special::kCtaidY, 2},
    {"%ctaid.z", Special::kCtaidZ, 2},
    {"%nctaid.x", Special::kNctaidX, 2},
    {"%nctaid.y", Special::kNctaidY, 2},
    {"%nctaid.z", Special::kNctaidZ, 2},
    {"%laneid", Special::kLaneId, 2},
    {"%warpid", Special::kWarpId, 2},
    {"%nwarpid", Special::kWarpCount, 2},
    {"%smid", Special::kSmId, 2},
    {"%nsmid", Special::kSmCount, 2},
    {"%gridid", Special::kGridId, 3},
    {"%lanemask_eq", Special::kLaneMaskEq, 2},
    {"%lanemask_le", Special::kLaneMaskLe, 2},
    {"%lanemask_lt", Special::kLaneMaskLt, 2},
    {"%lanemask_ge", Special::kLaneMaskGe, 2},
    {"%lanemask_gt", Special::kLaneMaskGt, 2},
    {"%clock", Special::kClock, 2},
    {"%clock_hi", Special::kClockHigh, 2},
    {"%clock64", Special::kClock64, 3},
    {"%globaltimer", Special::kGlobalTimer, 3},
    {"%globaltimer_lo", Special::kGlobalTimerLow, 2},
    {"%globaltimer_hi", Special::kGlobalTimerHigh, 2},
    {"%dynamic_smem_size", Special::kDynamicSharedBytes, 2},
    {"%total_smem_size", Special::kTotalSharedBytes, 2},
    {"%aggr_smem_size", Special::kAggregateSharedBytes, 2},
    {"%reserved_smem_offset_begin", Special::kReservedSharedBegin, 2},
    {"%reserved_smem_offset_end", Special::kReservedSharedEnd, 2},
    {"%reserved_smem_offset_cap", Special::kReservedSharedEnd, 2},
    {"%reserved_smem_offset_0", Special::kReservedSharedBegin, 2},
    {"%reserved_smem_offset_1", Special::kReservedShared1, 2},
    // Where cooperative groups find the state of the grid barrier.
    {"%envreg1", Special::kGridWorkspaceHigh, 2},
    {"%envreg2", Special::kGridWorkspaceLow, 2},
    {"%clusterid.x", Special::kClusterIdX, 2},
    {"%clusterid.y", Special::kClusterIdY, 2},
    {"%clusterid.z", Special::kClusterIdZ, 2},
    {"%nclusterid.x", Special::kClusterCountX, 2},
    {"%nclusterid.y", Special::kClusterCountY, 2},
    {"%nclusterid.z", Special::kClusterCountZ, 2},
    {"%cluster_ctaid.x", Special::kClusterCtaidX, 2},
    {"%cluster_ctaid.y", Special::kClusterCtaidY, 2},
    {"%cluster_ctaid.z", Special::kClusterCtaidZ, 2},
    {"%cluster_nctaid.x", Special::kClusterNctaidX, 2},
    {"%cluster_nctaid.y", Special::kClusterNctaidY, 2},
    {"%cluster_nctaid.z", Special::kClusterNctaidZ, 2},
    {"%cluster_ctarank", Special::kClusterRank, 2},
    {"%cluster_nctarank", Special::kClusterBlocks, 2},
    {"%is_explicit_cluster", Special::kIsExplicitCluster, 2},
};

uint32_t FloatToHalfBits(double value) {
  // Immediates of half type are rare; round through the f32 bits.
  const float f = static_cast<float>(value);
  const bool negative = std::signbit(f);
  double magnitude = negative ? -static_cast<double>(f) : static_cast<double>(f);
  uint32_t bits;
  if (magnitude != magnitude) {
    bits = 0x7fff;
  } else if (magnitude >= 65520.0) {
    bits = 0x7c00;
  } else if (magnitude < 6.103515625e-05) {
    bits = static_cast<uint32_t>(std::nearbyint(magnitude * 16777216.0));
  } else {
    int exponent = 0;
    const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
    const auto rounded = static_cast<uint32_t>(std::nearbyint(fraction * 2048.0));
    bits = (static_cast<uint32_t>(exponent + 14) << 10) + (rounded - 1024);
  }
  return bits | (negative ? 0x8000u : 0u);
}

uint32_t FloatToBfloatBits(double value) {
  const float f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (f != f) return 0x7fff;
  return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
}

}  // namespace

uint8_t Decoder::RegisterShift(ptx::RegisterId id) const {
  const size_t count = source_.registers.size();
  return ShiftOf(ParseType(id < count ? source_.registers[id].type : component_types_[id - count]));
}
bool Decoder::IsPredicate(ptx::RegisterId id) const {
  return id < source_.registers.size() && source_.registers[id].type == ".pred";
}
bool Decoder::IsVectorRegister(ptx::RegisterId id) const {
  if (id >= source_.registers.size()) return false;
  return !source_.registers[id].vector_type.empty() || source_.registers[id].type == ".b128";
}

Ref Decoder::RegisterRef(ptx::RegisterId id) {
  if (id >= register_refs_.size())
    register_refs_.resize(source_.registers.size() + component_types_.size(), kNoRef);
  Ref& ref = register_refs_[id];
  if (ref == kNoRef) {
    if (IsVectorRegister(id)) supported_ = false;
    ref = IsPredicate(id) ? TemporaryPredicate() : Temporary(RegisterShift(id));
  }
  return ref;
}

Ref Decoder::Temporary(uint8_t shift) {
  frame_bytes_ =
      (frame_bytes_ + kLaneArrayAlignment - 1) & ~static_cast<uint32_t>(kLaneArrayAlignment - 1);
  const Ref ref = frame_bytes_;
  frame_bytes_ += kWarpLanes << shift;
  out_.register_shifts.resize(ref / kLaneArrayAlignment);
  out_.register_shifts.push_back(shift);
  return ref;
}

Ref Decoder::TemporaryPredicate() {
  const Ref ref = frame_bytes_;
  frame_bytes_ += 4;
  return ref;
}

Ref Decoder::Constant(uint8_t shift, uint64_t bits) {
  if (shift < 3) bits &= (1ull << (8u << shift)) - 1;
  auto [entry, is_new] = constants_.try_emplace({shift, bits}, kNoRef);
  if (is_new) {
    size_t offset = (out_.constants.size() + kLaneArrayAlignment - 1) & ~(kLaneArrayAlignment - 1);
    entry->second = static_cast<Ref>(offset) | kConstantBit;
    out_.constants.resize(offset + (kWarpLanes << shift));
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      std::memcpy(out_.constants.data() + offset + (lane << shift), &bits, 1u << shift);
    }
  }
  return entry->second;
}

// A predicate is one 32-bit mask; the first lane of a splat constant serves.
Ref Decoder::PredicateConstant(bool value) { return Constant(2, value ? ~0u : 0u); }

Ref Decoder::Resize(Ref from, Type type, uint8_t to_shift) {
  if (ShiftOf(type) == to_shift) return from;
  const Ref to = Temporary(to_shift);
  EmitAlu("move." + std::to_string(8u << to_shift) + "." + std::string(SignedName(type)), to_shift,
          to, from);
  return to;
}

Ref Decoder::ReadImmediate(const ptx::Operand& operand, Type type) {
  const uint8_t shift = ShiftOf(type);
  if (!IsFloat(type)) {
    // 0f and 0d literals also stand for bits: mov.b32 %r1, 0f3F800000.
    return Constant(shift, static_cast<uint64_t>(operand.value));
  }
  double value = 0;
  std::string_view text = operand.text;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (operand.is_integer) {
    // An integer spelling where a half is wanted gives its bits: those types have no literals.
    if (IsHalf(type)) return Constant(shift, static_cast<uint64_t>(operand.value));
    value = static_cast<double>(operand.value);
  } else if (text.starts_with("0f") || text.starts_with("0F")) {
    const auto bits =
        static_cast<uint32_t>(std::strtoul(std::string(text.substr(2)).c_str(), nullptr, 16));
    if (type == Type::kF32 || type == Type::kTf32)
      return Constant(shift, negative ? bits ^ 0x80000000u : bits);
    float single;
    std::memcpy(&single, &bits, 4);
    value = negative ? -single : single;
  } else if (text.starts_with("0d") || text.starts_with("0D")) {
    const uint64_t bits = std::strtoull(std::string(text.substr(2)).c_str(), nullptr, 16);
    std::memcpy(&value, &bits, 8);
    if (negative) value = -value;
  } else {
    value = std::strtod(std::string(operand.text).c_str(), nullptr);
  }
  uint64_t bits = 0;
  switch (type) {
    case Type::kF64:
      std::memcpy(&bits, &value, 8);
      break;
    case Type::kF32:
    case Type::kTf32: {
      const float single = static_cast<float>(value);
      std::memcpy(&bits, &single, 4);
      break;
    }
    case Type::kF16:
      bits = FloatToHalfBits(value);
      break;
    case Type::kBf16:
      bits = FloatToBfloatBits(value);
      break;
    default:
      supported_ = false;
  }
  return Constant(shift, bits);
}

Ref Decoder::ReadSpecial(std::string_view name, Type type) {
  if (name == "WARP_SZ") return Constant(ShiftOf(type), kWarpLanes);
  for (const SpecialName& known : kSpecials) {
    if (known.name != name) continue;
    const Ref ref = Temporary(known.shift);
    Instruction& in = Emit(Op::kSpecial);
    in.d = ref;
    in.width = known.shift;
    in.extra = static_cast<uint8_t>(known.special);
    return Resize(ref, known.shift == 3 ? Type::kU64 : Type::kU32, ShiftOf(type));
  }
  supported_ = false;
  return Constant(ShiftOf(type), 0);
}

Ref Decoder::SymbolAddress(const Symbol& symbol, int64_t offset, uint8_t shift) {
  const auto value = symbol.value + static_cast<uint64_t>(offset);
  switch (symbol.kind) {
    case Symbol::Kind::kAddress:
    case Symbol::Kind::kKernelParameter:
      return Constant(shift, value);
    case Symbol::Kind::kFunction:
      return Constant(shift, program_.FunctionAddress(static_cast<uint32_t>(symbol.value)));
    case Symbol::Kind::kShared:
    case Symbol::Kind::kLocal: {
      const bool is_shared = symbol.kind == Symbol::Kind::kShared;
      if (kernel_ != nullptr) {
        const uint64_t base = is_shared ? kernel_->shared_offsets[symbol.value] : symbol.value;
        return Constant(shift, base + static_cast<uint64_t>(offset));
      }
      // The same device function runs in kernels with different layouts and at different stack
      // depths.
      const Ref ref = Temporary(shift);
      Instruction& in = Emit(is_shared ? Op::kSharedSymbol : Op::kLocalSymbol);
      in.d = ref;
      in.width = shift;
      in.immediate = is_shared ? symbol.value : value;
      in.a = static_cast<Ref>(offset);
      return ref;
    }
    case Symbol::Kind::kNone:
      break;
  }
  supported_ = false;
  return Constant(shift, 0);
}

Ref Decoder::ReadSymbol(const ptx::Operand& operand, uint8_t shift) {
  return SymbolAddress(FindSymbol(operand.text), operand.offset, shift);
}

Ref Decoder::Read(const ptx::Operand& operand, Type type) {
  switch (operand.kind) {
    case ptx::Operand::Kind::kRegister: {
      const Ref ref = RegisterRef(operand.reg);
      if (IsPredicate(operand.reg)) {
        supported_ = false;
        return ref;
      }
      return Resize(ref, BitsType(RegisterShift(operand.reg)), ShiftOf(type));
    }
    case ptx::Operand::Kind::kImmediate:
      return ReadImmediate(operand, type);
    case ptx::Operand::Kind::kSpecialRegister:
      return ReadSpecial(operand.text, type);
    case ptx::Operand::Kind::kSymbol:
      return ReadSymbol(operand, ShiftOf(type));
    default:
      supported_ = false;
      return Constant(ShiftOf(type), 0);
  }
}

Decoder::Destination Decoder::Write(const ptx::Operand& operand, Type type) {
  Destination destination;
  destination.type = type;
  if (operand.kind == ptx::Operand::Kind::kSink) {
    destination.ref = Temporary(ShiftOf(type));
    return destination;
  }
  if (!operand.IsRegister() || IsPredicate(operand.reg)) {
    supported_ = false;
    destination.ref = Temporary(ShiftOf(type));
    return destination;
  }
  const Ref ref = RegisterRef(operand.reg);
  const uint8_t shift = RegisterShift(operand.reg);
  if (shift == ShiftOf(type)) {
    destination.ref = ref;
  } else {
    destination.ref = Temporary(ShiftOf(type));
    destination.final_ref = ref;
    destination.final_shift = shift;
  }
  return destination;
}

void Decoder::Finish(const Destination& destination) {
  if (destination.final_ref == kNoRef) return;
  EmitAlu(
      "move." + std::to_string(8u << destination.final_shift) + "." +
          std::string(IsFloat(destination.type) ? SignedName(BitsType(ShiftOf(destination.type)))
                                                : SignedName(destination.type)),
      destination.final_shift, destination.final_ref, destination.ref);
}

Ref Decoder::ReadPredicate(const ptx::Operand& operand) {
  if (operand.kind == ptx::Operand::Kind::kNot) {
    const Ref inner = ReadPredicate(operand.children[0]);
    const Ref negated = TemporaryPredicate();
    EmitPredicate(PredicateOp::kNot, negated, inner);
    return negated;
  }
  if (operand.kind == ptx::Operand::Kind::kImmediate) return PredicateConstant(operand.value != 0);
  if (operand.kind == ptx::Operand::Kind::kSpecialRegister) {  // %is_explicit_cluster
    const Ref d = TemporaryPredicate();
    EmitCompare("ne.b32", d, ReadSpecial(operand.text, Type::kU32), Constant(2, 0));
    return d;
  }
  if (!operand.IsRegister() || !IsPredicate(operand.reg)) {
    supported_ = false;
    return PredicateConstant(false);
  }
  return RegisterRef(operand.reg);
}

Ref Decoder::WritePredicate(const ptx::Operand& operand) {
  if (operand.kind == ptx::Operand::Kind::kSink) return TemporaryPredicate();
  if (!operand.IsRegister() || !IsPredicate(operand.reg)) {
    supported_ = false;
    return TemporaryPredicate();
  }
  return RegisterRef(operand.reg);
}

Instruction& Decoder::Emit(Op op) {
  Instruction& in = out_.code.emplace_back();
  in.op = op;
  in.counted = 0;
  return in;
}

void Decoder::EmitExtended(std::shared_ptr<const ExtendedOperation> operation) {
  Emit(Op::kExtended).fn.extended = operation.get();
  out_.extended.push_back(std::move(operation));
}

void Decoder::EmitConvergence() {
  auto* operation = Own(out_.warp_operations);
  operation->members = Constant(2, kAllLanes);
  operation->is_convergence = true;
  Emit(Op::kWarpSync).fn.warp = operation;
}

void Decoder::EmitAlu(const std::string& key, uint8_t shift, Ref d, Ref a, Ref b, Ref c,
                      uint64_t immediate) {
  const AluFn fn = lanes_.FindAlu(key);
  if (fn == nullptr) supported_ = false;
  Instruction& in = Emit(Op::kAlu);
  in.flow = static_cast<uint8_t>(FlowOf(key));
  in.fn.alu = fn;
  in.width = shift;
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  in.immediate = immediate;
}

void Decoder::EmitCompare(const std::string& key, Ref d, Ref a, Ref b) {
  const CompareFn fn = lanes_.FindCompare(key);
  if (fn == nullptr) supported_ = false;
  Instruction& in = Emit(Op::kCompare);
  in.flow = static_cast<uint8_t>(FlowOf(key));
  in.fn.compare = fn;
  in.d = d;
  in.a = a;
  in.b = b;
}

void Decoder::EmitPredicate(PredicateOp operation, Ref d, Ref a, Ref b) {
  Instruction& in = Emit(Op::kPredicate);
  in.extra = static_cast<uint8_t>(operation);
  in.d = d;
  in.a = a;
  in.b = b == kNoRef ? a : b;
}

void Decoder::EmitSelect(uint8_t shift, Ref d, Ref a, Ref b, Ref predicate) {
  Instruction& in = Emit(Op::kSelect);
  in.width = shift;
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = predicate;
}

}  // namespace ops_debug::emulator
