// The printer: one append-only buffer, every piece written where the parser found it.
#include "ptx/printer.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace ops_debug::ptx {
namespace {

// A std::string with less work per append: grows by doubling, one bounds check per piece.
class Writer {
 public:
  explicit Writer(size_t capacity) { buffer_.resize(capacity < 256 ? 256 : capacity); }

  Writer& operator<<(std::string_view text) {
    if (text.empty()) return *this;
    if (buffer_.size() - size_ < text.size()) buffer_.resize((buffer_.size() + text.size()) * 2);
    std::memcpy(buffer_.data() + size_, text.data(), text.size());
    size_ += text.size();
    return *this;
  }
  Writer& operator<<(char c) {
    if (buffer_.size() == size_) buffer_.resize(buffer_.size() * 2);
    buffer_[size_++] = c;
    return *this;
  }
  std::string Take() && {
    buffer_.resize(size_);
    return std::move(buffer_);
  }

  // What is written next begins a line that was line `original` of the text that was parsed.
  void KeepLinesIn(std::vector<uint32_t>* lines) { lines_ = lines; }
  void Line(uint32_t original) {
    if (lines_ == nullptr) return;
    line_ +=
        static_cast<size_t>(std::count(buffer_.data() + counted_, buffer_.data() + size_, '\n'));
    counted_ = size_;
    lines_->resize(line_ + 1);
    lines_->back() = original;
  }

 private:
  std::string buffer_;
  size_t size_ = 0;
  std::vector<uint32_t>* lines_ = nullptr;
  size_t line_ = 0, counted_ = 0;  // line feeds in the first `counted_` bytes
};

void Write(Writer& out, const Operand& operand);

void WriteList(Writer& out, std::span<const Operand> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i != 0) out << ", ";
    Write(out, operands[i]);
  }
}

void WriteOffset(Writer& out, const Operand& operand) {
  if (!operand.has_offset) return;
  if (!operand.offset_is_bare) out << '+';
  if (operand.offset_text.empty()) {
    out << std::to_string(operand.offset);
  } else {
    out << operand.offset_text;
  }
}

void Write(Writer& out, const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
    case Operand::Kind::kSpecialRegister:
    case Operand::Kind::kImmediate:
      out << operand.text;
      break;
    case Operand::Kind::kSymbol:
      out << operand.text;
      WriteOffset(out, operand);
      break;
    case Operand::Kind::kSink:
      out << '_';
      break;
    case Operand::Kind::kAddress:
      out << '[';
      for (size_t i = 0; i < operand.children.size(); ++i) {
        if (i != 0) out << ", ";
        Write(out, operand.children[i]);
        if (i == 0) WriteOffset(out, operand);
      }
      out << ']' << operand.text;
      break;
    case Operand::Kind::kVector:
      out << '{';
      WriteList(out, operand.children);
      out << '}';
      break;
    case Operand::Kind::kList:
      out << '(';
      WriteList(out, operand.children);
      out << ')';
      break;
    case Operand::Kind::kPair:
      Write(out, operand.children[0]);
      out << '|';
      Write(out, operand.children[1]);
      break;
    case Operand::Kind::kNot:
      out << '!';
      Write(out, operand.children[0]);
      break;
    case Operand::Kind::kNegate:
      out << '-';
      Write(out, operand.children[0]);
      break;
    case Operand::Kind::kSelector:
      Write(out, operand.children[0]);
      out << operand.text;
      break;
    case Operand::Kind::kElement:
      Write(out, operand.children[0]);
      Write(out, operand.children[1]);
      break;
  }
}

void Write(Writer& out, const Instruction& instruction) {
  if (instruction.guard.Present()) {
    out << (instruction.guard.negated ? "@!" : "@") << instruction.guard.text << ' ';
  }
  out << instruction.opcode;
  for (std::string_view modifier : instruction.modifiers) out << modifier;
  if (!instruction.operands.empty()) {
    out << ' ';
    WriteList(out, instruction.operands);
  }
  out << ';';
}

void Write(Writer& out, const Loc& loc) {
  if (!loc.text.empty()) {
    out << loc.text;
    return;
  }
  out << ".loc " << std::to_string(loc.file) << ' ' << std::to_string(loc.line) << ' '
      << std::to_string(loc.column);
  if (loc.has_function) out << ", function_name " << loc.function_name << loc.function_offset;
  if (loc.inlined_at_file != 0) {
    out << ", inlined_at " << std::to_string(loc.inlined_at_file) << ' '
        << std::to_string(loc.inlined_at_line) << ' ' << std::to_string(loc.inlined_at_column);
  }
}

// Without the ';'.
void Write(Writer& out, const Variable& variable) {
  using Place = Variable::AlignmentPlace;
  const auto align_at = [&](Place place) {
    if (!variable.alignment.empty() && variable.alignment_place == place)
      out << ".align " << variable.alignment << ' ';
  };
  for (std::string_view word : variable.linkage) out << word << ' ';
  out << variable.space << ' ';
  align_at(Place::kBeforeAttributes);
  for (std::string_view word : variable.attributes) out << word << ' ';
  align_at(Place::kBeforeVectorType);
  if (!variable.vector_type.empty()) out << variable.vector_type << ' ';
  align_at(Place::kBeforeType);
  out << variable.type << ' ';
  for (std::string_view word : variable.pointer_attributes) out << word << ' ';
  align_at(Place::kBehindType);
  for (size_t i = 0; i < variable.names.size(); ++i) {
    const Variable::Name& name = variable.names[i];
    if (i != 0) out << ", ";
    out << name.text;
    if (!name.count_text.empty()) {
      out << '<' << name.count_text << '>';
    } else if (name.count != 0) {
      out << '<' << std::to_string(name.count) << '>';
    }
    for (std::string_view dimension : name.dims) out << '[' << dimension << ']';
    if (!name.initializer.empty()) out << " = " << name.initializer;
  }
}

struct StatementWriter {
  Writer& out;
  void operator()(const Instruction& instruction) const {
    out.Line(instruction.position.line);
    out << '\t';
    Write(out, instruction);
    out << '\n';
  }
  void operator()(const Label& label) const { out << label.name << ":\n"; }
  void operator()(const Loc& loc) const {
    out << '\t';
    Write(out, loc);
    out << '\n';
  }
  void operator()(const Variable& variable) const {
    out << '\t';
    Write(out, variable);
    out << ";\n";
  }
  void operator()(const BlockBegin&) const { out << "\t{\n"; }
  void operator()(const BlockEnd&) const { out << "\t}\n"; }
  void operator()(const RawDirective& raw) const { out << '\t' << raw.text << '\n'; }
};

void WriteParameters(Writer& out, const std::vector<Variable>& parameters) {
  out << '(';
  for (size_t i = 0; i < parameters.size(); ++i) {
    out << (i == 0 ? "\n\t" : ",\n\t");
    Write(out, parameters[i]);
  }
  out << (parameters.empty() ? ")" : "\n)");
}

// Registers that passes added, one declaration per type.
void WriteAddedRegisters(Writer& out, const Function& function) {
  std::map<std::string_view, std::vector<std::string_view>> names_by_type;
  for (RegisterId id : function.added_registers) {
    names_by_type[function.registers[id].type].push_back(function.registers[id].name);
  }
  for (const auto& [type, names] : names_by_type) {
    out << "\t.reg " << type << ' ';
    for (size_t i = 0; i < names.size(); ++i) out << (i == 0 ? "" : ", ") << names[i];
    out << ";\n";
  }
}

void Write(Writer& out, const Function& function) {
  for (std::string_view word : function.linkage) out << word << ' ';
  out << (function.is_entry ? ".entry " : ".func ");
  for (std::string_view word : function.attributes) out << word << ' ';
  if (function.has_result_list || !function.results.empty()) {
    WriteParameters(out, function.results);
    out << ' ';
  }
  out << function.name;
  if (function.has_parameter_list || !function.parameters.empty())
    WriteParameters(out, function.parameters);
  for (std::string_view directive : function.directives) out << '\n' << directive;
  if (!function.has_body) {
    out << ";\n";
    return;
  }
  out << "\n{\n";
  if (!function.added_registers.empty()) WriteAddedRegisters(out, function);
  const StatementWriter writer{out};
  for (const Statement& statement : function.body) std::visit(writer, statement);
  out << "}\n";
}

struct ItemWriter {
  Writer& out;
  void operator()(const Function& function) const {
    out << '\n';
    Write(out, function);
  }
  void operator()(const Variable& variable) const {
    Write(out, variable);
    out << ";\n";
  }
  void operator()(const File& file) const {
    out << "\t.file " << std::to_string(file.index) << ' ';
    if (file.path_text.empty()) {
      out << '"';
      for (char c : file.path) {
        if (c == '\\') out << '\\';
        out << c;
      }
      out << '"';
    } else {
      out << file.path_text;
    }
    out << file.rest << '\n';
  }
  void operator()(const RawDirective& raw) const { out << raw.text << '\n'; }
};

}  // namespace

std::string Print(const Module& module, std::vector<uint32_t>* original_lines) {
  Writer out(module.source().size() + module.source().size() / 8);
  out.KeepLinesIn(original_lines);
  out << ".version " << module.version << "\n.target ";
  for (size_t i = 0; i < module.targets.size(); ++i)
    out << (i == 0 ? "" : ", ") << module.targets[i];
  out << '\n';
  if (module.has_address_size)
    out << ".address_size " << std::to_string(module.address_size) << '\n';
  const ItemWriter writer{out};
  for (const Item& item : module.items) std::visit(writer, item);
  return std::move(out).Take();
}

std::string PrintInstruction(const Instruction& instruction) {
  Writer out(0);
  Write(out, instruction);
  std::string text = std::move(out).Take();
  // A constant expression keeps its own line breaks.
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return text;
}

std::string PrintOperand(const Operand& operand) {
  Writer out(0);
  Write(out, operand);
  return std::move(out).Take();
}

}  // namespace ops_debug::ptx
