// Signatures by demangling: the Itanium ABI encodes every parameter type of a kernel in its name,
// so the demangled name is a parameter list in C++ syntax. Only top-level commas separate
// parameters.
#include "runner/signature.h"

#include <cxxabi.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <memory>

namespace ops_debug::runner {
namespace {

// Position of the bracket that the one at `close` closes, scanning backwards; npos if unbalanced.
size_t OpeningBracket(std::string_view text, size_t close) {
  int depth = 0;
  for (size_t i = close + 1; i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::optional<Dimensions> ParseDimensions(std::string_view text) {
  Dimensions dimensions = {1, 1, 1};
  size_t axis = 0;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at < end && axis < 3) {
    if (!std::isdigit(static_cast<unsigned char>(*at))) {
      ++at;
      continue;
    }
    at = std::from_chars(at, end, dimensions[axis]).ptr;
    ++axis;
  }
  if (axis == 0) return std::nullopt;
  return dimensions;
}

void NoteUse(std::string_view special, IndexUse* use) {
  const size_t dot = special.find('.');
  if (dot == std::string_view::npos || dot + 1 >= special.size()) return;
  const int axis = special[dot + 1] - 'x';
  if (axis < 0 || axis > 2) return;
  const std::string_view name = special.substr(0, dot);
  if (name == "%tid") use->thread[axis] = true;
  if (name == "%ctaid") use->block[axis] = true;
  if (name == "%ntid") use->threads_per_block[axis] = true;
}

void NoteUses(const ptx::Operand& operand, IndexUse* use) {
  if (operand.kind == ptx::Operand::Kind::kSpecialRegister) NoteUse(operand.text, use);
  for (const ptx::Operand& child : operand.children) NoteUses(child, use);
}

void NoteUses(const ptx::Function& function, IndexUse* use) {
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr) continue;
    for (const ptx::Operand& operand : instruction->operands) NoteUses(operand, use);
  }
}

// What PTX alone tells of a parameter of an unmangled entry: `.ptr` marks pointers, and a floating
// type is a float.
ParameterType TypeFromPtx(const ptx::Variable& parameter) {
  ParameterType type;
  type.text = std::string(parameter.type);
  if (!parameter.pointer_attributes.empty()) {
    type.kind = ParameterType::Kind::kUntypedPointer;
    return type;
  }
  if (!parameter.names.empty() && !parameter.names[0].dims.empty())
    return type;  // .b8 name[24]: a struct
  std::string_view name = parameter.type;
  if (name.starts_with('.')) name.remove_prefix(1);
  // A 64-bit integer may be a pointer, and untyped bits may be anything.
  if (name == "u64" || name == "s64" || name.starts_with("b")) return type;
  if (std::optional<ScalarType> scalar = ScalarTypeFromName(name)) {
    type.kind = ParameterType::Kind::kScalar;
    type.element = {*scalar, 1};
  }
  return type;
}

Entry ReadEntry(const ptx::Function& function) {
  Entry entry;
  entry.mangled = std::string(function.name);
  entry.demangled = Demangle(entry.mangled);
  entry.name = UnqualifiedName(entry.demangled);
  const std::vector<ptx::ParameterLayout> layout = ptx::LayoutParameters(function);
  std::optional<std::vector<std::string>> types;
  if (entry.demangled != entry.mangled) types = ParameterTypesOf(entry.demangled);
  entry.types_known = types.has_value() && types->size() == layout.size();
  for (size_t i = 0; i < layout.size(); ++i) {
    Parameter parameter;
    parameter.name = "arg" + std::to_string(i);
    parameter.size_bytes = layout[i].size_bytes;
    parameter.type =
        entry.types_known ? ParseType((*types)[i]) : TypeFromPtx(function.parameters[i]);
    entry.parameters.push_back(std::move(parameter));
  }
  for (std::string_view directive : function.directives) {
    if (directive.starts_with(".reqntid")) entry.required_block = ParseDimensions(directive);
    if (directive.starts_with(".maxntid")) entry.maximum_block = ParseDimensions(directive);
  }
  return entry;
}

}  // namespace

std::string Demangle(const std::string& name) {
  // __cxa_demangle also takes bare type codes: an unmangled kernel called "c" would become "char".
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : name;
}

std::optional<std::vector<std::string>> ParameterTypesOf(std::string_view demangled) {
  const size_t close = demangled.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  const size_t open = OpeningBracket(demangled, close);
  if (open == std::string_view::npos || open == 0) return std::nullopt;
  std::vector<std::string> types;
  std::string current;
  int depth = 0;
  for (size_t i = open + 1; i < close; ++i) {
    const char c = demangled[i];
    if (c == '(' || c == '<' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == '>' || c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      types.push_back(std::move(current));
      current.clear();
      if (i + 1 < close && demangled[i + 1] == ' ') ++i;
    } else {
      current += c;
    }
  }
  if (!current.empty() && current != "void") types.push_back(std::move(current));
  return types;
}

std::string UnqualifiedName(std::string_view demangled) {
  std::string_view text = demangled;
  const size_t close = text.rfind(')');
  if (close != std::string_view::npos) {
    const size_t open = OpeningBracket(text, close);
    if (open != std::string_view::npos && open != 0) text = text.substr(0, open);
  }
  if (text.ends_with('>')) {
    int depth = 0;
    size_t i = text.size();
    while (i-- > 0) {
      if (text[i] == '>') ++depth;
      if (text[i] == '<' && --depth == 0) break;
    }
    text = text.substr(0, i);
  }
  size_t begin = text.size();
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) ||
                       text[begin - 1] == '_' || text[begin - 1] == '$')) {
    --begin;
  }
  return std::string(text.substr(begin));
}

std::vector<Entry> ReadEntries(const ptx::Module& module) {
  IndexUse functions_use;  // of functions that an entry may call
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function != nullptr && !function->is_entry) NoteUses(*function, &functions_use);
  }
  std::vector<Entry> entries;
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->is_entry || !function->has_body) continue;
    Entry entry = ReadEntry(*function);
    entry.index_use = functions_use;
    NoteUses(*function, &entry.index_use);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace ops_debug::runner
