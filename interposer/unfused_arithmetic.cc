// Finds opcodes in the text without parsing statements: an opcode is a word with dots, and no other
// word of PTX begins with "add.", "sub." or "mul.".
#include "interposer/unfused_arithmetic.h"

#include <cctype>
#include <string_view>

namespace ops_debug::interposer {
namespace {

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' ||
         c == '%';
}

// True for "mul.ftz.f32"; false for "mul.wide.s32", "add.rz.f32", "add.s64".
bool IsUnroundedFloat(std::string_view opcode) {
  const std::string_view operation = opcode.substr(0, 4);
  if (operation != "add." && operation != "sub." && operation != "mul.") return false;
  std::string_view rest = opcode.substr(4);
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    if (dot == std::string_view::npos) {
      return part == "f32" || part == "f64" || part == "f32x2" || part == "f16" ||
             part == "f16x2" || part == "bf16" || part == "bf16x2";
    }
    // With a type of mixed precision ("add.f32.bf16") more follows; it is never fused with a mul.
    if (part != "ftz" && part != "sat") return false;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace

std::string ForbidFusing(const std::string& ptx) {
  std::string out;
  out.reserve(ptx.size() + ptx.size() / 64);
  const std::string_view text = ptx;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    size_t length = 1;
    if (rest.starts_with("//")) {
      length = std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      const size_t end = rest.find("*/", 2);
      length = end == std::string_view::npos ? rest.size() : end + 2;
    } else if (rest.front() == '"') {
      const size_t end = rest.find('"', 1);
      length = end == std::string_view::npos ? rest.size() : end + 1;
    } else if (IsWordCharacter(rest.front())) {
      while (length < rest.size() && IsWordCharacter(rest[length])) ++length;
      if (IsUnroundedFloat(rest.substr(0, length))) {
        out += rest.substr(0, 3);
        out += ".rn";
        at += 3;
        length -= 3;
      }
    }
    out += text.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace ops_debug::interposer
