// A dataflow analysis like Provenance: the value of a register is the join of all its definitions.
// Arithmetic is taken as exact; numbers of threads that wrap around 32 bits keep their differences
// modulo 2^32, and grids are smaller.
#include "shadow/passes/own_index.h"

#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;
using Term = OwnIndexes::Term;
using Value = OwnIndexes::Value;

Value Of(Term term) {
  Value value;
  value.term = term;
  return value;
}

Value Constant(int64_t number) {
  Value value = Of(Term::kConstant);
  value.constant = number;
  return value;
}

bool IsConstant(const Value& value) { return value.term == Term::kConstant && !value.has_pointer; }

Value Join(const Value& a, const Value& b) {
  if (a.term == Term::kUnvisited) return b;
  if (b.term == Term::kUnvisited || a == b) return a;
  return Of(Term::kOther);
}

Value Add(const Value& a, const Value& b) {
  if (a.term == Term::kUnvisited || b.term == Term::kUnvisited) return Value{};
  if (a.term == Term::kOther || b.term == Term::kOther || (a.has_pointer && b.has_pointer))
    return Of(Term::kOther);
  Value sum;
  const auto is = [&](Term one, Term other) {
    return (a.term == one && b.term == other) || (a.term == other && b.term == one);
  };
  if (a.term == Term::kConstant || b.term == Term::kConstant) {
    const Value& moving = a.term == Term::kConstant ? b : a;
    sum.term = moving.term;
    sum.factor = moving.factor;
  } else if (is(Term::kBlockStart, Term::kThread) && a.factor == 1 && b.factor == 1) {
    sum.term = Term::kOwn;
  } else if (is(Term::kOwn, Term::kAll) && a.factor == b.factor) {
    sum.term = Term::kOwn;
    sum.factor = a.factor;
  } else {
    return Of(Term::kOther);
  }
  sum.constant = a.constant + b.constant;
  sum.has_pointer = a.has_pointer || b.has_pointer;
  sum.parameter_offset = a.has_pointer ? a.parameter_offset : b.parameter_offset;
  return sum;
}

Value Multiply(const Value& a, const Value& b) {
  if (a.term == Term::kUnvisited || b.term == Term::kUnvisited) return Value{};
  if (a.has_pointer || b.has_pointer) return Of(Term::kOther);
  if (IsConstant(a) && IsConstant(b)) return Constant(a.constant * b.constant);
  const auto is = [&](Term one, Term other) {
    return a.constant == 0 && b.constant == 0 && a.factor == 1 && b.factor == 1 &&
           ((a.term == one && b.term == other) || (a.term == other && b.term == one));
  };
  if (is(Term::kBlock, Term::kBlockSize)) return Of(Term::kBlockStart);
  if (is(Term::kGridSize, Term::kBlockSize)) return Of(Term::kAll);
  if (!IsConstant(a) && !IsConstant(b)) return Of(Term::kOther);
  const Value& moving = IsConstant(a) ? b : a;
  const int64_t by = IsConstant(a) ? a.constant : b.constant;
  if (moving.term == Term::kOther || by == 0) return Of(Term::kOther);
  Value product = moving;
  product.factor *= by;
  product.constant *= by;
  return product;
}

// A number of a thread that is scaled in 32 bits may wrap around and meet another one's.
Value Scaled(const Instruction& instruction, const Value& product) {
  if (product.term != Term::kOwn && product.term != Term::kAll) return product;
  if (product.factor == 1 || instruction.Has(".wide")) return product;
  const bool is_64_bit =
      !instruction.modifiers.empty() && ptx::TypeSizeBytes(instruction.modifiers.back()) == 8;
  return is_64_bit ? product : Of(Term::kOther);
}

}  // namespace

OwnIndexes::OwnIndexes(const ptx::Function& function) : values_(function.registers.size()) {
  for (const ptx::ParameterLayout& parameter : ptx::LayoutParameters(function))
    parameters_[parameter.name] = parameter.offset_bytes;
  // The lattice is four high; the bound guards against a fault of ours only.
  bool changed = true;
  for (int round = 0; changed && round < 16; round++) {
    changed = false;
    for (const ptx::Statement& statement : function.body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      const Value made = Transfer(*instruction);
      ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
        if (!is_write || reg >= values_.size()) return;
        const bool plain =
            instruction->operands[0].IsRegister() && instruction->operands[0].reg == reg;
        const Value joined = Join(values_[reg], plain ? made : Of(Term::kOther));
        if (joined == values_[reg]) return;
        values_[reg] = joined;
        changed = true;
      });
    }
  }
  if (changed) values_.assign(values_.size(), Of(Term::kOther));
}

Value OwnIndexes::OfOperand(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      return operand.reg < values_.size() ? values_[operand.reg] : Of(Term::kOther);
    case Operand::Kind::kImmediate:
      return operand.is_integer ? Constant(operand.value) : Of(Term::kOther);
    case Operand::Kind::kSpecialRegister:
      if (operand.text == "%tid.x") return Of(Term::kThread);
      if (operand.text == "%ctaid.x") return Of(Term::kBlock);
      if (operand.text == "%ntid.x") return Of(Term::kBlockSize);
      if (operand.text == "%nctaid.x") return Of(Term::kGridSize);
      return Of(Term::kOther);
    default:
      return Of(Term::kOther);
  }
}

Value OwnIndexes::Transfer(const Instruction& instruction) const {
  const auto operand = [&](size_t i) {
    return i < instruction.operands.size() ? OfOperand(instruction.operands[i]) : Of(Term::kOther);
  };
  // A guarded definition leaves the old value to the other threads; the join takes care of it.
  if (instruction.Is("mov") || instruction.Is("cvta")) return operand(1);
  if (instruction.Is("cvt")) {
    const Value value = operand(1);
    // Narrowing would drop bits of a pointer or of an index.
    const bool integers =
        !instruction.modifiers.empty() &&
        (instruction.modifiers.back() == ".s32" || instruction.modifiers.back() == ".u32");
    return integers && (instruction.Has(".s64") || instruction.Has(".u64")) ? value
                                                                            : Of(Term::kOther);
  }
  if (instruction.Is("add")) return Add(operand(1), operand(2));
  if (instruction.Is("sub")) {
    const Value right = operand(2);
    if (right.term == Term::kUnvisited) return Value{};
    return IsConstant(right) ? Add(operand(1), Constant(-right.constant)) : Of(Term::kOther);
  }
  if (instruction.Is("mul") || instruction.Is("mad")) {
    if (instruction.Has(".hi")) return Of(Term::kOther);
    const Value product = Scaled(instruction, Multiply(operand(1), operand(2)));
    return instruction.Is("mul") ? product : Add(product, operand(3));
  }
  if (instruction.Is("shl")) {
    const Value amount = operand(2);
    if (amount.term == Term::kUnvisited) return Value{};
    if (!IsConstant(amount) || amount.constant < 0 || amount.constant > 30) return Of(Term::kOther);
    return Scaled(instruction, Multiply(operand(1), Constant(int64_t{1} << amount.constant)));
  }
  if (instruction.Is("ld") && instruction.operands.size() > 1 &&
      instruction.operands[1].IsAddress() && !instruction.operands[1].children.empty()) {
    const Operand& address = instruction.operands[1];
    const auto found = parameters_.find(address.children[0].text);
    if (found != parameters_.end() && ptx::TypeSizeBytes(instruction.modifiers.back()) == 8) {
      Value value = Constant(0);
      value.has_pointer = true;
      value.parameter_offset = found->second + static_cast<uint32_t>(address.offset);
      return value;
    }
  }
  return Of(Term::kOther);
}

OwnIndex OwnIndexes::OfAddress(const Operand& address) const {
  OwnIndex own;
  if (!address.IsAddress() || address.children.empty()) return own;
  const Value value = OfOperand(address.children[0]);
  own.known = value.term == Term::kOwn && value.has_pointer;
  own.parameter_offset = value.parameter_offset;
  own.stride = value.factor;
  own.offset = value.constant + address.offset;
  return own;
}

}  // namespace ops_debug::shadow
