// Module storage and look-up, registers added by passes, sizes of types and parameters.
#include <algorithm>
#include <new>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "ptx/special_registers.h"

namespace ops_debug::ptx {

std::string Diagnostic::ToString() const {
  std::string result;
  if (line != 0) result = std::to_string(line) + ":" + std::to_string(column) + ": ";
  result += message;
  if (!hint.empty()) result += " (" + hint + ")";
  return result;
}

Module::Module() : Module(std::string()) {}

// Operands take about ten times the space of their text; one chunk of that size is cheap while
// untouched.
Module::Module(std::string source)
    : source_(std::make_unique<std::string>(std::move(source))),
      arena_(std::make_unique<std::pmr::monotonic_buffer_resource>(
          std::clamp<size_t>(source_->size() * 8, 1024, size_t{64} << 20))) {}

Module::Module(Module&&) noexcept = default;
Module& Module::operator=(Module&&) noexcept = default;
Module::~Module() = default;

std::string_view Module::Intern(std::string_view text) {
  char* storage = static_cast<char*>(arena_->allocate(text.size() + 1, 1));
  text.copy(storage, text.size());
  storage[text.size()] = 0;  // the lexer relies on it
  return {storage, text.size()};
}

std::span<Operand> Module::Intern(std::span<const Operand> operands) {
  if (operands.empty()) return {};
  auto* storage = static_cast<Operand*>(arena_->allocate(operands.size_bytes(), alignof(Operand)));
  std::uninitialized_copy(operands.begin(), operands.end(), storage);
  return {storage, operands.size()};
}

std::span<std::string_view> Module::InternList(std::span<const std::string_view> list) {
  if (list.empty()) return {};
  auto* storage = static_cast<std::string_view*>(
      arena_->allocate(list.size_bytes(), alignof(std::string_view)));
  std::uninitialized_copy(list.begin(), list.end(), storage);
  return {storage, list.size()};
}

const Function* Module::FindFunction(std::string_view name) const {
  const Function* declaration = nullptr;
  for (const Item& item : items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || function->name != name) continue;
    if (function->has_body) return function;
    if (declaration == nullptr) declaration = function;
  }
  return declaration;
}

Function* Module::FindFunction(std::string_view name) {
  return const_cast<Function*>(static_cast<const Module*>(this)->FindFunction(name));
}

const Variable* Module::FindVariable(std::string_view name) const {
  for (const Item& item : items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable == nullptr) continue;
    for (const Variable::Name& declared : variable->names) {
      if (declared.text == name) return variable;
    }
  }
  return nullptr;
}

const File* Module::FindFile(uint32_t index) const {
  for (const Item& item : items) {
    const auto* file = std::get_if<File>(&item);
    if (file != nullptr && file->index == index) return file;
  }
  return nullptr;
}

bool Instruction::Has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Operand AddRegister(Module& module, Function& function, std::string_view type,
                    std::string_view prefix) {
  std::string name;
  for (size_t number = function.added_registers.size();; ++number) {
    name = std::string(prefix) + std::to_string(number);
    // A prefix whose range is declared ("%r" beside %r<8>) would clash at every number.
    if (function.register_table.EverDeclared(name))
      name = std::string(prefix) + "_" + std::to_string(number);
    if (!function.register_table.EverDeclared(name) && !IsSpecialRegister(name)) break;
  }
  Operand operand;
  operand.kind = Operand::Kind::kRegister;
  operand.text = module.Intern(name);
  operand.reg = function.register_table.DeclareName(operand.text, module.Intern(type), {},
                                                    function.registers);
  function.added_registers.push_back(operand.reg);
  return operand;
}

namespace {

std::span<Operand> CloneOperands(Module& module, std::span<const Operand> operands) {
  const std::span<Operand> copy = module.Intern(operands);
  for (Operand& operand : copy) operand.children = CloneOperands(module, operand.children);
  return copy;
}

}  // namespace

Function CloneFunction(Module& module, const Function& function) {
  Function copy = function;
  for (Statement& statement : copy.body) {
    if (auto* instruction = std::get_if<Instruction>(&statement)) {
      instruction->operands = CloneOperands(module, instruction->operands);
      instruction->modifiers = module.InternList(instruction->modifiers);
    }
  }
  return copy;
}

uint32_t TypeSizeBytes(std::string_view type) {
  struct Named {
    std::string_view type;
    uint32_t size_bytes;
  };
  // Types whose digits do not say their size.
  static constexpr Named kNamed[] = {
      {".f16x2", 4},   {".bf16x2", 4}, {".u16x2", 4},  {".s16x2", 4},  {".f32x2", 8},
      {".tf32", 4},    {".e4m3", 1},   {".e5m2", 1},   {".e4m3x2", 2}, {".e5m2x2", 2},
      {".e4m3x4", 4},  {".e5m2x4", 4}, {".e3m2x2", 2}, {".e2m3x2", 2}, {".e2m1x2", 1},
      {".ue8m0x2", 2}, {".e3m2x4", 4}, {".e2m3x4", 4}, {".e2m1x4", 2},
  };
  for (const Named& named : kNamed) {
    if (named.type == type) return named.size_bytes;
  }
  // ".b64", ".s8", ".bf16": letters, then bits.
  size_t digits = type.size();
  while (digits > 0 && type[digits - 1] >= '0' && type[digits - 1] <= '9') --digits;
  if (digits == 0 || digits == type.size() || type.size() - digits > 4 || type[0] != '.') return 0;
  const std::string_view letters = type.substr(1, digits - 1);
  if (letters != "b" && letters != "u" && letters != "s" && letters != "f" && letters != "bf")
    return 0;
  uint32_t bits = 0;
  for (char c : type.substr(digits)) bits = bits * 10 + static_cast<uint32_t>(c - '0');
  return bits / 8;
}

namespace {

bool IsOpaque(std::string_view type) {
  return type == ".texref" || type == ".samplerref" || type == ".surfref";
}

// Bytes of one element with its vector width. Opaque handles are 64 bits wide.
uint32_t ElementSizeBytes(const Variable& variable) {
  if (IsOpaque(variable.type)) return 8;
  const uint32_t width =
      variable.vector_type.empty() ? 1 : static_cast<uint32_t>(variable.vector_type[2] - '0');
  return TypeSizeBytes(variable.type) * width;
}

}  // namespace

uint64_t VariableSizeBytes(const Variable& variable, const Variable::Name& name) {
  uint64_t size = IsOpaque(variable.type) ? 0 : ElementSizeBytes(variable);
  for (std::string_view dimension : name.dims) {
    int64_t elements = 0;
    if (!EvaluateConstant(dimension, &elements) || elements < 0) return 0;
    size *= static_cast<uint64_t>(elements);
  }
  return size;
}

uint32_t VariableAlignmentBytes(const Variable& variable) {
  int64_t alignment = 0;
  if (EvaluateConstant(variable.alignment, &alignment) && alignment > 0 && alignment <= 1 << 20) {
    return static_cast<uint32_t>(alignment);
  }
  return std::max(1u, ElementSizeBytes(variable));
}

std::vector<ParameterLayout> LayoutParameters(const Function& function) {
  std::vector<ParameterLayout> layout;
  uint32_t end = 0;
  for (const Variable& variable : function.parameters) {
    for (const Variable::Name& name : variable.names) {
      ParameterLayout parameter;
      parameter.name = name.text;
      parameter.alignment_bytes = VariableAlignmentBytes(variable);
      parameter.size_bytes =
          IsOpaque(variable.type) ? 8 : static_cast<uint32_t>(VariableSizeBytes(variable, name));
      parameter.offset_bytes = (end + parameter.alignment_bytes - 1) / parameter.alignment_bytes *
                               parameter.alignment_bytes;
      end = parameter.offset_bytes + parameter.size_bytes;
      layout.push_back(parameter);
    }
  }
  return layout;
}

}  // namespace ops_debug::ptx
