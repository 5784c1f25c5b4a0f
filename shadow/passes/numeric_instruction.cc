// One table from opcodes to operations; types stand in the modifiers, the last one is the
// operands'.
#include "shadow/passes/numeric_instruction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <string>

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

struct Opcode {
  std::string_view name;
  NumericOperation operation;
  uint8_t operands;
};
constexpr Opcode kOpcodes[] = {
    {"add", kOperationAdd, 2},        {"sub", kOperationSubtract, 2},
    {"mul", kOperationMultiply, 2},   {"fma", kOperationFma, 3},
    {"mad", kOperationFma, 3},        {"div", kOperationDivide, 2},
    {"rcp", kOperationReciprocal, 1}, {"sqrt", kOperationSquareRoot, 1},
    {"lg2", kOperationLog2, 1},       {"rsqrt", kOperationReciprocalSquareRoot, 1},
    {"ex2", kOperationExp2, 1},       {"sin", kOperationOther, 1},
    {"cos", kOperationOther, 1},      {"tanh", kOperationOther, 1},
    {"min", kOperationMinMax, 2},     {"max", kOperationMinMax, 2},
    {"setp", kOperationCompare, 2},   {"set", kOperationCompare, 2},
};

struct FloatType {
  std::string_view name;
  NumericType type;
  bool packed;
};
constexpr FloatType kFloatTypes[] = {
    {".f16", kTypeF16, false},    {".f16x2", kTypeF16, true},   {".bf16", kTypeBf16, false},
    {".bf16x2", kTypeBf16, true}, {".f32", kTypeF32, false},    {".f64", kTypeF64, false},
    {".e4m3x2", kTypeE4m3, true}, {".e5m2x2", kTypeE5m2, true}, {".tf32", kTypeTf32, false},
};

const FloatType* FindFloat(std::string_view modifier) {
  const auto* found = std::find_if(std::begin(kFloatTypes), std::end(kFloatTypes),
                                   [&](const FloatType& type) { return type.name == modifier; });
  return found == std::end(kFloatTypes) ? nullptr : found;
}

// ".s32", ".u8", ".b32"; 0: none.
uint32_t IntegerBits(std::string_view modifier) {
  if (modifier.size() < 3 || (modifier[1] != 's' && modifier[1] != 'u')) return 0;
  const uint32_t bytes = ptx::TypeSizeBytes(modifier);
  return bytes * 8;
}

bool IsPlain(const Operand& operand) {
  return operand.IsRegister() || operand.kind == Operand::Kind::kImmediate;
}

// The type modifiers, in order.
std::vector<std::string_view> TypesOf(const Instruction& instruction) {
  std::vector<std::string_view> types;
  for (std::string_view modifier : instruction.modifiers) {
    if (FindFloat(modifier) != nullptr || IntegerBits(modifier) != 0) types.push_back(modifier);
  }
  return types;
}

std::optional<NumericInstruction> DescribeConversion(const Instruction& instruction) {
  const std::vector<std::string_view> types = TypesOf(instruction);
  if (types.size() != 2 || instruction.operands.size() < 2) return {};
  const FloatType* to = FindFloat(types[0]);
  const FloatType* from = FindFloat(types[1]);
  NumericInstruction out;
  out.operation = kOperationConvert;
  out.result = &instruction.operands[0];
  for (const Operand& operand : instruction.operands.subspan(1)) {
    if (!IsPlain(operand)) return {};
    out.operands.push_back(&operand);
  }
  if (out.operands.size() > 2 || !out.result->IsRegister()) return {};
  if (to != nullptr && from != nullptr) {
    if (to->type == from->type) return {};  // rounds to an integer, or nothing
    out.operand_type = from->type;
    out.result_type = to->type;
    out.packed = to->packed;
    const bool packs = to->packed && !from->packed;
    if (packs != (out.operands.size() == 2) || (from->packed && !to->packed)) return {};
    if (packs && from->type != kTypeF32) return {};
    return out;
  }
  if (out.operands.size() != 1) return {};
  if (to != nullptr && IntegerBits(types[1]) != 0) {
    out.operand_type = kTypeInteger;
    out.result_type = to->type;
    out.integer_signed = types[1][1] == 's';
    // Others cannot overflow.
    return to->type == kTypeF16 ? std::optional(out) : std::nullopt;
  }
  if (from == nullptr || from->packed || IntegerBits(types[0]) == 0) return {};
  if (from->type != kTypeF32 && from->type != kTypeF64) return {};
  out.operation = kOperationToInteger;
  out.operand_type = from->type;
  out.result_type = kTypeInteger;
  // Saturation is what the program asked for; NaN and infinities are not numbers all the same.
  const bool saturates = instruction.Has(".sat");
  const uint32_t bits = IntegerBits(types[0]) - (types[0][1] == 's' ? 1 : 0);
  out.integer_limit = saturates ? HUGE_VAL : std::ldexp(1.0, static_cast<int>(bits));
  return out;
}

std::optional<NumericInstruction> DescribeMatrix(const Instruction& instruction) {
  if (instruction.Is("wmma") && !instruction.Has(".mma")) return {};
  if (instruction.operands.size() < 4 || instruction.Has(".sp")) return {};
  const std::vector<std::string_view> types = TypesOf(instruction);
  const FloatType* result = types.empty() ? nullptr : FindFloat(types.front());
  const FloatType* accumulator = types.empty() ? nullptr : FindFloat(types.back());
  if (result == nullptr || accumulator == nullptr || result->type != accumulator->type) return {};
  NumericInstruction out;
  out.operation = kOperationMatrix;
  out.operand_type = out.result_type = result->type;
  // Elements of half accumulators come in pairs.
  out.packed = result->type == kTypeF16;
  out.result = &instruction.operands[0];
  for (const Operand& operand : instruction.operands.subspan(1)) {
    if (operand.kind == Operand::Kind::kVector) out.operands.push_back(&operand);
  }
  if (out.result->kind != Operand::Kind::kVector || out.operands.size() != 3 ||
      out.operands[2]->children.size() != out.result->children.size()) {
    return {};
  }
  out.matrix_factors = types.size() == 4 ? types[1] : instruction.Is("wmma") ? ".f16" : "";
  return out;
}

// What leaves for global memory: st, and what red and atom add.
std::optional<NumericInstruction> DescribeStore(const Instruction& instruction) {
  for (std::string_view modifier : instruction.modifiers) {
    if (modifier.starts_with(".shared") || modifier == ".local" || modifier.starts_with(".param") ||
        modifier == ".async" || modifier == ".bulk") {
      return {};
    }
  }
  const FloatType* type =
      instruction.modifiers.empty() ? nullptr : FindFloat(instruction.modifiers.back());
  if (type == nullptr || WidthOf(type->type) < 16 || instruction.operands.size() < 2) return {};
  if (!instruction.Is("st") && !instruction.Has(".add")) return {};
  NumericInstruction out;
  out.operation = kOperationStore;
  out.operand_type = out.result_type = type->type;
  out.packed = type->packed;
  const Operand& value = instruction.operands.back();
  if (value.kind == Operand::Kind::kVector) {
    for (const Operand& element : value.children) out.operands.push_back(&element);
  } else {
    out.operands.push_back(&value);
  }
  std::erase_if(out.operands, [](const Operand* operand) { return !operand->IsRegister(); });
  if (out.operands.empty()) return {};
  return out;
}

}  // namespace

bool NumericInstruction::Narrows() const {
  return operation == kOperationConvert && operand_type != kTypeInteger &&
         (WidthOf(result_type) < WidthOf(operand_type) || result_type == kTypeTf32);
}
bool NumericInstruction::Widens() const {
  return operation == kOperationConvert && operand_type != kTypeInteger && !Narrows();
}

std::optional<NumericInstruction> DescribeNumeric(const Instruction& instruction) {
  if (instruction.Is("cvt")) return DescribeConversion(instruction);
  if (instruction.Is("mma") || instruction.Is("wmma")) return DescribeMatrix(instruction);
  if (instruction.Is("st") || instruction.Is("red") || instruction.Is("atom"))
    return DescribeStore(instruction);
  const auto* opcode =
      std::find_if(std::begin(kOpcodes), std::end(kOpcodes),
                   [&](const Opcode& entry) { return instruction.Is(entry.name); });
  if (opcode == std::end(kOpcodes) || instruction.modifiers.empty()) return {};
  const FloatType* type = FindFloat(instruction.modifiers.back());
  if (type == nullptr || type->type == kTypeTf32) return {};
  const bool compares = opcode->operation == kOperationCompare;
  // A result that is forced into [0, 1] hides everything; other second types are sums of mixed
  // types.
  if (instruction.Has(".sat") || (!compares && TypesOf(instruction).size() != 1)) return {};
  if (instruction.operands.size() < opcode->operands + size_t{1}) return {};
  if (!compares && instruction.operands.size() != opcode->operands + size_t{1}) return {};
  NumericInstruction out;
  out.operation = opcode->operation;
  out.operand_type = out.result_type = type->type;
  out.packed = type->packed;
  if (!compares) out.result = &instruction.operands[0];
  if (!compares && !out.result->IsRegister()) return {};
  for (const Operand& operand : instruction.operands.subspan(1, opcode->operands)) {
    if (!IsPlain(operand)) return {};
    out.operands.push_back(&operand);
  }
  return out;
}

const char* NameOf(NumericType type) {
  switch (type) {
    case kTypeF16:
      return "f16";
    case kTypeBf16:
      return "bf16";
    case kTypeF32:
      return "f32";
    case kTypeF64:
      return "f64";
    case kTypeE4m3:
      return "e4m3";
    case kTypeE5m2:
      return "e5m2";
    case kTypeTf32:
      return "tf32";
    case kTypeInteger:
      break;
  }
  return "s64";
}

uint32_t WidthOf(NumericType type) {
  switch (type) {
    case kTypeF16:
    case kTypeBf16:
      return 16;
    case kTypeE4m3:
    case kTypeE5m2:
      return 8;
    case kTypeF64:
    case kTypeInteger:
      return 64;
    case kTypeF32:
    case kTypeTf32:
      break;
  }
  return 32;
}

std::optional<uint64_t> LiteralBits(const Operand& operand, NumericType type) {
  if (operand.kind != Operand::Kind::kImmediate) return {};
  const std::string_view text = operand.text;
  const bool is_float =
      text.find("0f") != std::string_view::npos || text.find("0F") != std::string_view::npos;
  const bool is_double =
      text.find("0d") != std::string_view::npos || text.find("0D") != std::string_view::npos;
  const auto bits = static_cast<uint64_t>(operand.value);
  if (operand.is_integer && type == kTypeInteger) return bits;
  // Bits of a half stand as an integer.
  if (operand.is_integer && WidthOf(type) == 16) return bits;
  if (!is_float && !is_double) return {};
  if (is_float && type == kTypeF64)
    return std::bit_cast<uint64_t>(
        static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  if (is_double && type == kTypeF32)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  return bits;
}

}  // namespace ops_debug::shadow
