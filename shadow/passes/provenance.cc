// The transfer functions read like the manual's list of integer instructions. Two rules carry the
// weight: a value that is scaled (mul, shl) is a number, whatever it was, because its coefficient
// is no longer +1; and a value whose bits are mixed (and, shr, prmt, ...) is opaque unless all
// inputs are numbers.
#include "shadow/passes/provenance.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

Value Number(uint8_t alignment_log2) {
  Value value;
  value.origin = Origin::kNumber;
  value.alignment_log2 = alignment_log2;
  value.exact = false;
  return value;
}

uint8_t AlignmentOf(int64_t constant) {
  if (constant == 0) return Value::kMaxAlignment;
  return static_cast<uint8_t>(
      std::min<int>(std::countr_zero(static_cast<uint64_t>(constant)), Value::kMaxAlignment));
}

Value Constant(int64_t constant) {
  Value value = Number(AlignmentOf(constant));
  value.exact = true;
  value.offset = constant;
  return value;
}

Value Of(Origin origin) {
  Value value;
  value.origin = origin;
  value.alignment_log2 = 0;
  value.exact = false;
  return value;
}

uint8_t Saturate(int alignment_log2) {
  return static_cast<uint8_t>(std::clamp(alignment_log2, 0, int{Value::kMaxAlignment}));
}

Value Inexact(Value value) {
  value.exact = false;
  value.offset = 0;
  return value;
}

Value Join(const Value& a, const Value& b) {
  if (a.origin == Origin::kUnvisited) return b;
  if (b.origin == Origin::kUnvisited) return a;
  if (a.origin == Origin::kOpaque || b.origin == Origin::kOpaque) return Of(Origin::kOpaque);
  if (a.origin != b.origin || a.id != b.id || a.region != b.region) return Of(Origin::kUnknown);
  Value joined = a;
  joined.alignment_log2 = std::min(a.alignment_log2, b.alignment_log2);
  if (!a.exact || !b.exact || a.offset != b.offset) joined = Inexact(joined);
  return joined;
}

Value Add(const Value& a, const Value& b) {
  if (a.origin == Origin::kUnvisited || b.origin == Origin::kUnvisited) return Value{};
  if (a.origin == Origin::kOpaque || b.origin == Origin::kOpaque) return Of(Origin::kOpaque);
  const bool a_number = a.origin == Origin::kNumber, b_number = b.origin == Origin::kNumber;
  if (!a_number && !b_number) return Of(Origin::kUnknown);
  const Value& base = a_number ? b : a;
  const Value& terms = a_number ? a : b;
  Value sum = base;
  sum.alignment_log2 = std::min(base.alignment_log2, terms.alignment_log2);
  if (base.exact && terms.exact) {
    sum.offset = base.offset + terms.offset;
    sum.alignment_log2 = AlignmentOf(sum.offset);
  } else {
    sum = Inexact(sum);
  }
  return sum;
}

Value Negate(const Value& value) {
  if (value.origin == Origin::kUnvisited) return value;
  if (value.origin != Origin::kNumber) return Of(Origin::kOpaque);
  Value negated = value;
  negated.offset = -value.offset;
  return negated;
}

// a * b, and a << log2(b).
Value Multiply(const Value& a, const Value& b) {
  if (a.origin == Origin::kUnvisited || b.origin == Origin::kUnvisited) return Value{};
  if (a.origin == Origin::kOpaque || b.origin == Origin::kOpaque) return Of(Origin::kOpaque);
  if (a.exact && b.exact && a.origin == Origin::kNumber && b.origin == Origin::kNumber) {
    return Constant(
        static_cast<int64_t>(static_cast<uint64_t>(a.offset) * static_cast<uint64_t>(b.offset)));
  }
  // A pointer times something has the alignment of the other factor at least.
  const int left = a.origin == Origin::kNumber ? a.alignment_log2 : 0;
  const int right = b.origin == Origin::kNumber ? b.alignment_log2 : 0;
  return Number(Saturate(left + right));
}

Value ShiftLeft(const Value& a, const Value& amount) {
  if (amount.origin == Origin::kNumber && amount.exact) {
    if (amount.offset < 0 || amount.offset > 62) return Number(0);
    return Multiply(a, Constant(int64_t{1} << amount.offset));
  }
  return Multiply(a, Number(0));
}

uint64_t ParseUnsigned(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

Provenance::Provenance(const ptx::Module& module, const ptx::Function& function)
    : is_entry_(function.is_entry) {
  CollectSymbols(module, function);
  if (is_entry_) {
    for (const ptx::ParameterLayout& parameter : ptx::LayoutParameters(function)) {
      parameter_offsets_[parameter.name] = parameter.offset_bytes;
    }
  }
  values_.resize(function.registers.size());
  register_bytes_.reserve(function.registers.size());
  for (const ptx::Register& reg : function.registers) {
    register_bytes_.push_back(static_cast<uint8_t>(ptx::TypeSizeBytes(reg.type)));
  }
  // Every value moves down a lattice of small height; the bound only guards against a fault in a
  // transfer function.
  for (int round = 0; round < 64; round++) {
    bool changed = false;
    for (const ptx::Statement& statement : function.body) {
      if (const auto* instruction = std::get_if<Instruction>(&statement))
        changed |= Visit(*instruction);
    }
    if (!changed) break;
    if (round == 63) std::fill(values_.begin(), values_.end(), Of(Origin::kOpaque));
  }
  CollectLocalRegions(function);
}

void Provenance::CollectSymbols(const ptx::Module& module, const ptx::Function& function) {
  const auto add = [this](const ptx::Variable& variable) {
    if (variable.space != ".shared" && variable.space != ".global" && variable.space != ".const" &&
        variable.space != ".local") {
      return;
    }
    const bool is_extern = std::find(variable.linkage.begin(), variable.linkage.end(), ".extern") !=
                           variable.linkage.end();
    uint64_t element = ptx::TypeSizeBytes(variable.type);
    if (variable.vector_type == ".v2") element *= 2;
    if (variable.vector_type == ".v4") element *= 4;
    for (const ptx::Variable::Name& name : variable.names) {
      AddressedSymbol symbol;
      symbol.name = name.text;
      symbol.space = variable.space;
      symbol.alignment_bytes = variable.alignment.empty()
                                   ? static_cast<uint32_t>(element)
                                   : static_cast<uint32_t>(ParseUnsigned(variable.alignment));
      symbol.size_bytes = element;
      for (std::string_view dim : name.dims) symbol.size_bytes *= ParseUnsigned(dim);
      // `int a[] = {...}` also has an empty dimension, but its initializer tells that it is no
      // dynamic shared memory.
      if (is_extern) symbol.size_bytes = 0;
      symbol.dynamic_shared = is_extern && variable.space == ".shared";
      symbol_index_[name.text] = static_cast<uint32_t>(symbols_.size());
      symbols_.push_back(symbol);
    }
  };
  for (const ptx::Item& item : module.items) {
    if (const auto* variable = std::get_if<ptx::Variable>(&item)) add(*variable);
  }
  for (const ptx::Statement& statement : function.body) {
    if (const auto* variable = std::get_if<ptx::Variable>(&statement)) add(*variable);
  }
}

// nvcc places the arrays of a function in one __local_depot and materialises each array's start
// once, as "%SP + constant" or "%SPL + constant" (an alloca behind an address-space cast, which no
// constant is folded into). An access that is known to reach across such a start proves that it
// lies inside an array; that start is then dropped.
void Provenance::CollectLocalRegions(const ptx::Function& function) {
  for (const Value& value : values_) {
    if (value.origin == Origin::kLocalRegion) local_regions_[value.id].push_back(value.region);
  }
  for (auto& [symbol, starts] : local_regions_) {
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  }
  if (local_regions_.empty()) return;
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr || (!instruction->Is("ld") && !instruction->Is("st"))) continue;
    for (const Operand& operand : instruction->operands) {
      if (!operand.IsAddress()) continue;
      const Value value = OfAddress(operand);
      if (value.origin != Origin::kLocalRegion || !value.exact) continue;
      auto& starts = local_regions_[value.id];
      const int64_t reached = value.region + value.offset;
      std::erase_if(starts,
                    [&](int64_t start) { return start > value.region && start <= reached; });
    }
  }
}

uint64_t Provenance::LocalRegionBytes(uint32_t symbol, int64_t region) const {
  const std::vector<int64_t>& starts = local_regions_.at(symbol);
  const auto next = std::upper_bound(starts.begin(), starts.end(), region);
  const int64_t end =
      next == starts.end() ? static_cast<int64_t>(symbols_[symbol].size_bytes) : *next;
  return end > region ? static_cast<uint64_t>(end - region) : 0;
}

Value Provenance::OfOperand(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      return operand.reg < values_.size() ? values_[operand.reg] : Of(Origin::kUnknown);
    case Operand::Kind::kSpecialRegister:
      return Number(0);
    case Operand::Kind::kImmediate:
      return operand.is_integer ? Constant(operand.value) : Number(0);
    case Operand::Kind::kSymbol: {
      const auto found = symbol_index_.find(operand.text);
      if (found == symbol_index_.end()) return Of(Origin::kUnknown);
      Value value;
      value.origin = Origin::kSymbol;
      value.id = found->second;
      value.offset = operand.offset;
      value.alignment_log2 = AlignmentOf(operand.offset);
      return value;
    }
    default:
      return Of(Origin::kOpaque);
  }
}

Value Provenance::OfAddress(const Operand& address) const {
  if (address.children.empty()) return Of(Origin::kUnknown);
  const Value base = OfOperand(address.children[0]);
  return address.offset == 0 ? base : Add(base, Constant(address.offset));
}

Value Provenance::LoadParameter(const Operand& address, uint32_t element_bytes,
                                uint32_t element) const {
  if (element_bytes < 8) return Number(0);
  if (!is_entry_ || address.children.empty()) return Of(Origin::kUnknown);
  const auto found = parameter_offsets_.find(address.children[0].text);
  if (found == parameter_offsets_.end()) return Of(Origin::kUnknown);
  Value value;
  value.origin = Origin::kParameter;
  value.id = found->second + static_cast<uint32_t>(address.offset) + element * element_bytes;
  return value;
}

bool Provenance::Assign(const Operand& destination, const Value& value) {
  if (!destination.IsRegister() || destination.reg >= values_.size()) return false;
  Value& held = values_[destination.reg];
  const Value joined = Join(held, value);
  if (joined == held) return false;
  held = joined;
  return true;
}

bool Provenance::Visit(const Instruction& instruction) {
  if (instruction.operands.empty()) return false;
  const Operand& destination = instruction.operands[0];
  if (instruction.Is("ld") && instruction.operands.size() > 1) {
    const bool from_parameter =
        std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                    [](std::string_view m) { return m.starts_with(".param"); });
    const std::span<const Operand> targets = destination.kind == Operand::Kind::kVector
                                                 ? std::span<const Operand>(destination.children)
                                                 : std::span<const Operand>(&destination, 1);
    // Without a type that is understood, a loaded value may be a pointer.
    const uint32_t known_bytes =
        instruction.modifiers.empty() ? 0 : ptx::TypeSizeBytes(instruction.modifiers.back());
    const uint32_t bytes = known_bytes == 0 ? 8 : known_bytes;
    bool changed = false;
    for (uint32_t i = 0; i < targets.size(); i++) {
      changed |=
          Assign(targets[i], from_parameter ? LoadParameter(instruction.operands[1], bytes, i)
                             : bytes >= 8   ? Of(Origin::kUnknown)
                                            : Number(0));
    }
    return changed;
  }
  if (destination.kind == Operand::Kind::kVector || destination.kind == Operand::Kind::kList ||
      destination.kind == Operand::Kind::kPair) {
    // Unpacked halves, results of calls and matrix instructions.
    Value value = Of(Origin::kOpaque);
    if (instruction.Is("mov") && instruction.operands.size() > 1 &&
        OfOperand(instruction.operands[1]).origin == Origin::kNumber) {
      value = Number(0);
    }
    bool changed = false;
    for (const Operand& element : destination.children) {
      const bool narrow = element.IsRegister() && element.reg < register_bytes_.size() &&
                          register_bytes_[element.reg] < 8 && !instruction.Is("mov");
      changed |= Assign(element, narrow ? Number(0) : value);
    }
    return changed;
  }
  if (!destination.IsRegister()) return false;
  return Assign(destination, Transfer(instruction));
}

Value Provenance::Transfer(const Instruction& instruction) const {
  const std::string_view opcode = instruction.opcode;
  const auto operand = [&](size_t i) {
    return i < instruction.operands.size() ? OfOperand(instruction.operands[i])
                                           : Of(Origin::kOpaque);
  };
  const bool wide_result = instruction.operands[0].reg < register_bytes_.size() &&
                           register_bytes_[instruction.operands[0].reg] >= 8;

  if (instruction.operands.size() < 2) return Of(Origin::kUnknown);
  if (opcode == "mov") {
    if (instruction.operands[1].kind ==
        Operand::Kind::kVector) {  // packing: the halves may be those of a pointer
      return wide_result ? Of(Origin::kOpaque) : Number(0);
    }
    return operand(1);
  }
  if (opcode == "cvta") return operand(1);
  if (opcode == "add") {
    if (instruction.operands.size() < 3) return Of(Origin::kUnknown);
    const Value a = operand(1), b = operand(2);
    // The start of a local array: exactly the depot plus a constant.
    const Value& depot = a.origin == Origin::kSymbol ? a : b;
    const Operand& other =
        a.origin == Origin::kSymbol ? instruction.operands[2] : instruction.operands[1];
    if (depot.origin == Origin::kSymbol && depot.exact && depot.offset == 0 && other.is_integer &&
        symbols_[depot.id].space == ".local" &&
        symbols_[depot.id].name.starts_with("__local_depot")) {
      Value value;
      value.origin = Origin::kLocalRegion;
      value.id = depot.id;
      value.region = other.value;
      return value;
    }
    return Add(a, b);
  }
  if (opcode == "sub") return Add(operand(1), Negate(operand(2)));
  if (opcode == "neg") return Negate(operand(1));
  if (opcode == "mul") return Multiply(operand(1), operand(2));
  if (opcode == "mad") {
    if (instruction.Has(".hi")) return Number(0);
    return Add(Multiply(operand(1), operand(2)), operand(3));
  }
  if (opcode == "shl") return ShiftLeft(operand(1), operand(2));
  if (opcode == "selp") return Join(operand(1), operand(2));
  if (opcode == "min" || opcode == "max") return Inexact(Join(operand(1), operand(2)));
  if (opcode == "cvt") {
    const Value source = operand(1);
    if (source.origin == Origin::kUnvisited || source.origin == Origin::kNumber) return source;
    // A shared-memory address fits 32 bits, so narrowing and widening keep it.
    if (source.origin == Origin::kSymbol && symbols_[source.id].space == ".shared") return source;
    return Of(Origin::kOpaque);
  }
  if (opcode == "or") {
    // LLVM writes `or` for an addition that cannot carry.
    const Value a = operand(1), b = operand(2);
    if (b.origin == Origin::kNumber && b.exact && (a.IsPointer() || a.origin == Origin::kNumber)) {
      Value sum = Inexact(a);
      sum.alignment_log2 = std::min(a.alignment_log2, b.alignment_log2);
      return sum;
    }
  }
  if (opcode == "and") {
    const Value a = operand(1), b = operand(2);
    if (a.origin == Origin::kNumber && b.origin == Origin::kNumber) {
      return Number(std::max(a.alignment_log2, b.alignment_log2));
    }
  }
  if (opcode == "atom" || opcode == "ldu") return wide_result ? Of(Origin::kUnknown) : Number(0);

  bool visited = false;
  for (size_t i = 1; i < instruction.operands.size(); i++) {
    if (instruction.operands[i].IsAddress()) return wide_result ? Of(Origin::kUnknown) : Number(0);
    const Value value = operand(i);
    if (value.origin == Origin::kUnvisited) continue;
    visited = true;
    if (value.origin != Origin::kNumber) return Of(Origin::kOpaque);
  }
  if (!visited && instruction.operands.size() > 1) return Value{};
  return Number(0);
}

}  // namespace ops_debug::shadow
