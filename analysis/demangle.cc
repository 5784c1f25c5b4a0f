// Itanium demangling through the run-time library, and just enough reading of its output. Brackets
// nest, so one counter finds the last parameter list and the commas at its top level.
#include "analysis/demangle.h"

#include <cxxabi.h>

#include <cstdlib>

namespace ops_debug::analysis {
namespace {

// A peer may send any string; the demangler's work and recursion grow with its length.
constexpr size_t kMaxMangledLength = 16 << 10;

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Position of the '(' that opens the parameter list of the outermost function, or npos.
size_t ParameterListBegin(std::string_view signature) {
  int depth = 0;
  for (size_t i = signature.size(); i-- > 0;) {
    const char c = signature[i];
    if (c == ')') {
      ++depth;
    } else if (c == '(' && --depth == 0) {
      return i;
    } else if (depth == 0 && c == ':') {
      return std::string_view::npos;  // "f(int)::s": a thing inside a function, not a function
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::string Demangle(const std::string& name) {
  if (name.rfind("_Z", 0) != 0 || name.size() > kMaxMangledLength) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (status != 0 || text == nullptr) return name;
  std::string result = text;
  std::free(text);
  return result;
}

std::vector<std::string> ParameterTypes(std::string_view signature) {
  const size_t begin = ParameterListBegin(signature);
  if (begin == std::string_view::npos) return {};
  std::vector<std::string> types;
  int depth = 0;
  size_t start = begin + 1;
  for (size_t i = begin + 1; i < signature.size(); ++i) {
    const char c = signature[i];
    const bool closes = c == ')' || c == '>' || c == ']' || c == '}';
    if (depth == 0 && (c == ',' || c == ')')) {
      const std::string_view type = Trim(signature.substr(start, i - start));
      if (!type.empty()) types.emplace_back(type);
      start = i + 1;
      if (c == ')') break;
    } else if (closes) {
      --depth;
    } else if (c == '(' || c == '<' || c == '[' || c == '{') {
      ++depth;
    }
  }
  return types;
}

std::string BareName(std::string_view signature) {
  const size_t parameters = ParameterListBegin(signature);
  std::string_view name = signature.substr(0, parameters);
  // Cut the template arguments, then whatever stands before the last space: the return type.
  if (!name.empty() && name.back() == '>') {
    int depth = 0;
    for (size_t i = name.size(); i-- > 0;) {
      if (name[i] == '>') ++depth;
      if (name[i] == '<' && --depth == 0) {
        name = name.substr(0, i);
        break;
      }
    }
  }
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>' || name[i] == ')') ++depth;
    if (name[i] == '<' || name[i] == '(') --depth;
    if (name[i] == ' ' && depth == 0) return std::string(name.substr(i + 1));
  }
  return std::string(name);
}

}  // namespace ops_debug::analysis
