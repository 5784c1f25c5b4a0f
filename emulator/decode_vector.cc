// Vector registers (.reg .v4 .f32 %v) and 128-bit registers: groups of scalar registers. An
// instruction that names them is rewritten before it is decoded: %v.x becomes the element's own
// register, %v a vector {x, y, z, w} of them, and a .b128 access one of .v2.b64, so that no other
// part of the decoder knows of such registers (PTX ISA 9.0, 5.4.2 and 9.7.9.3).
#include <algorithm>
#include <string>

#include "emulator/decoder.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

// Element of ".x", ".g" and their like; -1 if it is none.
int ElementIndex(std::string_view selector) {
  constexpr std::string_view kNames[2] = {"xyzw", "rgba"};
  if (selector.size() != 2 || selector[0] != '.') return -1;
  for (std::string_view names : kNames) {
    const size_t found = names.find(selector[1]);
    if (found != std::string_view::npos) return static_cast<int>(found);
  }
  return -1;
}

}  // namespace

uint32_t Decoder::ComponentCount(ptx::RegisterId id) const {
  const ptx::Register& reg = source_.registers[id];
  if (reg.type == ".b128") return 2;
  return reg.vector_type == ".v4" ? 4 : 2;
}

ptx::Operand Decoder::Component(ptx::RegisterId id, uint32_t index) {
  auto [entry, is_new] = components_.try_emplace({id, index});
  if (is_new) {
    const ptx::Register& reg = source_.registers[id];
    entry->second =
        static_cast<ptx::RegisterId>(source_.registers.size() + component_types_.size());
    component_types_.push_back(reg.type == ".b128" ? std::string_view(".b64") : reg.type);
  }
  ptx::Operand operand;
  operand.kind = Kind::kRegister;
  operand.reg = entry->second;
  operand.text = source_.registers[id].name;
  return operand;
}

ptx::Operand Decoder::ExpandOperand(const ptx::Operand& operand, Expanded& out, bool* found) {
  if (operand.kind == Kind::kRegister && IsVectorRegister(operand.reg)) {
    *found = true;
    ptx::Operand vector;
    vector.kind = Kind::kVector;
    vector.text = operand.text;
    auto& elements = out.children.emplace_back();
    for (uint32_t i = 0; i < ComponentCount(operand.reg); ++i)
      elements.push_back(Component(operand.reg, i));
    vector.children = elements;
    return vector;
  }
  if (operand.kind == Kind::kSelector && operand.children.size() == 1 &&
      operand.children[0].IsRegister() && IsVectorRegister(operand.children[0].reg)) {
    const int index = ElementIndex(operand.text);
    const ptx::RegisterId reg = operand.children[0].reg;
    if (index < 0 || index >= static_cast<int>(ComponentCount(reg))) return operand;
    *found = true;
    return Component(reg, static_cast<uint32_t>(index));
  }
  if (operand.children.empty()) return operand;
  ptx::Operand copy = operand;
  auto& children = out.children.emplace_back();
  for (const ptx::Operand& child : operand.children)
    children.push_back(ExpandOperand(child, out, found));
  copy.children = children;
  return copy;
}

bool Decoder::ExpandVectors(const ptx::Instruction& in, Expanded& out) {
  bool found = false;
  for (const ptx::Operand& operand : in.operands)
    out.operands.push_back(ExpandOperand(operand, out, &found));
  if (!found) return false;
  out.instruction = in;
  out.instruction.operands = out.operands;
  const bool is_access = in.opcode == "ld" || in.opcode == "st" || in.opcode == "ldu";
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".b128" && (is_access || in.opcode == "mov")) {
      if (is_access) out.modifiers.push_back(".v2");
      modifier = ".b64";
    }
    out.modifiers.push_back(modifier);
  }
  out.instruction.modifiers = out.modifiers;
  return true;
}

// mov.v4.f32 %v, %u and mov.b128 %q, {%rd1, %rd2}: element by element, all of them read first.
bool Decoder::MoveVector(const ptx::Instruction& in) {
  const Type type = LastType(in);
  const auto& to = in.operands[0].children;
  const auto& from = in.operands[1].children;
  if (to.size() != from.size() || type == Type::kPred) return false;
  const uint8_t shift = ShiftOf(type);
  const std::string key = "mov." + std::string(BitsName(shift));
  std::vector<Ref> values;
  for (const ptx::Operand& element : from) {
    const Ref value = Temporary(shift);
    EmitAlu(key, shift, value, Read(element, type));
    values.push_back(value);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].kind == Kind::kSink) continue;
    const Destination d = Write(to[i], type);
    EmitAlu(key, shift, d.ref, values[i]);
    Finish(d);
  }
  return true;
}

}  // namespace ops_debug::emulator
