// Initialisers of .global and .const variables: {1, 0f3F800000, name, name+8, generic(name),
// 0xFF00(name)}, nested by dimension. Missing elements are zero (PTX ISA 9.0, section 5.4.4).
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emulator/program.h"
#include "emulator/ptx_type.h"

namespace ops_debug::emulator {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(const Program::Impl& program, std::string_view text, Type type)
      : program_(program), text_(text), type_(type) {}

  // Writes at most out_bytes bytes from element 0 on. `strides`: elements per step of each
  // dimension, outermost first.
  bool Read(const std::vector<uint64_t>& strides, std::byte* out, uint64_t out_bytes) {
    out_ = out;
    out_bytes_ = out_bytes;
    strides_ = strides;
    Skip();
    const bool ok = At('{') ? ReadBraces(0, 0) : ReadElement(0);
    Skip();
    if (ok && position_ != text_.size()) return Fail("unexpected text behind the value");
    return ok;
  }
  const std::string& reason() const { return reason_; }

 private:
  bool Fail(const std::string& reason) {
    if (reason_.empty())
      reason_ = reason + " at '" + std::string(text_.substr(position_, 24)) + "'";
    return false;
  }
  void Skip() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t' ||
                                        text_[position_] == '\n' || text_[position_] == '\r')) {
      ++position_;
    }
  }
  bool At(char c) const { return position_ < text_.size() && text_[position_] == c; }
  bool Take(char c) {
    Skip();
    if (!At(c)) return false;
    ++position_;
    Skip();
    return true;
  }
  std::string_view Word() {
    Skip();
    const size_t begin = position_;
    while (position_ < text_.size() && IsNameCharacter(text_[position_])) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  bool ReadBraces(size_t depth, uint64_t first) {
    if (!Take('{')) return Fail("expected '{'");
    const uint64_t stride = depth < strides_.size() ? strides_[depth] : 1;
    for (uint64_t element = first; !At('}'); element += stride) {
      if (At('{') ? !ReadBraces(depth + 1, element) : !ReadElement(element)) return false;
      if (!Take(',')) break;
    }
    return Take('}') || Fail("expected ',' or '}'");
  }

  bool ReadElement(uint64_t index) {
    uint64_t bits = 0;
    if (!ReadValue(&bits)) return false;
    const uint64_t bytes = 1ull << ShiftOf(type_);
    if ((index + 1) * bytes > out_bytes_) return Fail("more values than the variable holds");
    std::memcpy(out_ + index * bytes, &bits, bytes);
    return true;
  }

  bool ReadValue(uint64_t* bits) {
    Skip();
    const bool negative = Take('-');
    const std::string_view word = Word();
    if (word.empty()) return Fail("expected a value");
    if (!IsDigit(word[0])) {
      if (word == "generic" && Take('(')) {
        if (!ReadAddress(Word(), true, bits)) return false;
        return Take(')') ? AddOffset(bits) : Fail("expected ')'");
      }
      return ReadAddress(word, false, bits);
    }
    if (At('(')) {  // mask(name): some bytes of an address
      const uint64_t mask = std::strtoull(std::string(word).c_str(), nullptr, 0);
      Take('(');
      uint64_t address = 0;
      std::string_view name = Word();
      const bool generic = name == "generic" && Take('(');
      if (generic) name = Word();
      if (mask == 0 || !ReadAddress(name, generic, &address)) return Fail("unreadable mask()");
      if (generic && (!Take(')') || !AddOffset(&address))) return Fail("expected ')'");
      if (!Take(')')) return Fail("expected ')'");
      *bits = (address & mask) >> __builtin_ctzll(mask);
      return true;
    }
    return ReadNumber(word, negative, bits);
  }

  bool ReadNumber(std::string_view word, bool negative, uint64_t* bits) {
    std::string text(word);
    // The exponent's sign is not part of a word: 1.0e-3.
    if ((text.back() == 'e' || text.back() == 'E') && !text.starts_with("0x") &&
        !text.starts_with("0X") && !text.starts_with("0f") && !text.starts_with("0F") &&
        !text.starts_with("0d") && !text.starts_with("0D") && (At('-') || At('+'))) {
      text += text_[position_++];
      text += Word();
    }
    double value = 0;
    if (text.starts_with("0f") || text.starts_with("0F")) {
      auto raw = static_cast<uint32_t>(std::strtoul(text.c_str() + 2, nullptr, 16));
      if (negative) raw ^= 0x80000000u;
      if (type_ != Type::kF64) {
        *bits = raw;
        return true;
      }
      float single;
      std::memcpy(&single, &raw, 4);
      value = single;
    } else if (text.starts_with("0d") || text.starts_with("0D")) {
      uint64_t raw = std::strtoull(text.c_str() + 2, nullptr, 16);
      if (negative) raw ^= 1ull << 63;
      if (type_ != Type::kF32) {
        *bits = raw;
        return true;
      }
      std::memcpy(&value, &raw, 8);
    } else if (!IsFloat(type_) || IsHalf(type_)) {
      if (text.find('.') != std::string::npos)
        return Fail("floating-point value for an integer variable");
      const bool is_binary = text.starts_with("0b") || text.starts_with("0B");
      const uint64_t raw = is_binary ? std::strtoull(text.c_str() + 2, nullptr, 2)
                                     : std::strtoull(text.c_str(), nullptr, 0);
      *bits = negative ? -raw : raw;
      return true;
    } else {
      value = std::strtod(text.c_str(), nullptr);
      if (negative) value = -value;
    }
    if (type_ == Type::kF64) {
      std::memcpy(bits, &value, 8);
    } else {
      const float single = static_cast<float>(value);
      std::memcpy(bits, &single, 4);
    }
    return true;
  }

  bool AddOffset(uint64_t* bits) {
    Skip();
    if (!At('+') && !At('-')) return true;
    const bool negative = At('-');
    ++position_;
    Skip();
    const uint64_t offset = std::strtoull(std::string(Word()).c_str(), nullptr, 0);
    *bits += negative ? -offset : offset;
    return true;
  }

  bool ReadAddress(std::string_view name, bool generic, uint64_t* bits) {
    const auto symbol = program_.module_symbols.find(name);
    if (symbol != program_.module_symbols.end()) {
      if (symbol->second.kind != Symbol::Kind::kAddress)
        return Fail("address of " + std::string(name) + ", which is not a global variable");
      *bits = symbol->second.value;
      return AddOffset(bits);
    }
    const auto function = program_.function_index.find(name);
    if (function == program_.function_index.end() || generic)
      return Fail("unknown name " + std::string(name));
    *bits = program_.FunctionAddress(function->second);
    return AddOffset(bits);
  }

  const Program::Impl& program_;
  std::string_view text_;
  Type type_;
  size_t position_ = 0;
  std::byte* out_ = nullptr;
  uint64_t out_bytes_ = 0;
  std::vector<uint64_t> strides_;
  std::string reason_;
};

}  // namespace

uint64_t CountInitializers(std::string_view initializer) {
  uint64_t count = 0;
  bool in_value = false;
  int parentheses = 0;
  for (char c : initializer) {
    if (c == '(') ++parentheses;
    if (c == ')') --parentheses;
    if (c == '{' || c == '}' || (c == ',' && parentheses == 0)) {
      in_value = false;
    } else if (!in_value && c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      in_value = true;
      ++count;
    }
  }
  return count;
}

bool ApplyInitializer(const Program::Impl& program, const ptx::Variable& variable,
                      const ptx::Variable::Name& name, std::byte* memory, uint64_t size_bytes,
                      std::string* reason) {
  const Type type = ParseType(variable.type);
  if (type == Type::kNone || type == Type::kPred) return true;  // opaque: nothing to write
  // Strides in elements, innermost 1. A vector type is one more dimension.
  std::vector<uint64_t> dims;
  for (std::string_view dim : name.dims)
    dims.push_back(dim.empty() ? 0 : std::strtoull(std::string(dim).c_str(), nullptr, 0));
  if (variable.vector_type == ".v2") dims.push_back(2);
  if (variable.vector_type == ".v4") dims.push_back(4);
  std::vector<uint64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  Reader reader(program, name.initializer, type);
  if (reader.Read(strides, memory, size_bytes)) return true;
  *reason = reader.reason();
  return false;
}

}  // namespace ops_debug::emulator
