// The regular expression of --kernel-name, compiled in one way by everybody who reads it: the
// launcher, which refuses what is wrong, and the interposer, which matches inside the program.
//
// libstdc++'s usual matcher recurses once per character, and demangled names of operator libraries
// have thousands of them: it would overflow the stack of a small thread. `__polynomial` chooses its
// other matcher, which keeps a set of states (Thompson, "Regular expression search algorithm", CACM
// 1968): linear time, no recursion, and no back-references.
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace ops_debug::proto {

struct PatternError {
  std::string text;     // "this ( is never closed"
  size_t position = 0;  // of the offending character, from 1
};

namespace pattern_internal {

inline std::string TextOf(std::regex_constants::error_type code) {
  switch (code) {
    case std::regex_constants::error_badrepeat:
      return "nothing to repeat";
    case std::regex_constants::error_escape:
      return "unknown or unfinished escape";
    case std::regex_constants::error_backref:
      return "back-reference to a group that is not there";
    case std::regex_constants::error_range:
      return "range whose end lies before its beginning";
    case std::regex_constants::error_ctype:
      return "unknown character class";
    case std::regex_constants::error_collate:
      return "unknown collating element";
    case std::regex_constants::error_brace:
    case std::regex_constants::error_badbrace:
      return "bad repeat count";
    case std::regex_constants::error_complexity:
      return "back-references are not supported";
    case std::regex_constants::error_space:
    case std::regex_constants::error_stack:
      return "too long";
    default:
      return "not a regular expression";
  }
}

// std::regex_error does not say where. Brackets that do not pair are found by pairing them.
inline std::optional<PatternError> UnpairedBracket(std::string_view pattern) {
  std::vector<size_t> groups;  // positions of open (, from 1
  size_t set = 0;              // position of the '[' we are in, from 1
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (i + 1 == pattern.size()) return PatternError{"unfinished escape", i + 1};
      ++i;
    } else if (set != 0) {
      if (c == ']') set = 0;
    } else if (c == '[') {
      set = i + 1;
    } else if (c == '(') {
      groups.push_back(i + 1);
    } else if (c == ')') {
      if (groups.empty()) return PatternError{"this ) closes nothing", i + 1};
      groups.pop_back();
    }
  }
  if (set != 0) return PatternError{"this [ is never closed", set};
  if (!groups.empty()) return PatternError{"this ( is never closed", groups.back()};
  return std::nullopt;
}

inline std::regex Compile(const std::string& pattern) {
  return std::regex(
      pattern, std::regex::ECMAScript | std::regex::optimize | std::regex_constants::__polynomial);
}

}  // namespace pattern_internal

// Nothing, and `*error` if it is not null, if `pattern` is no ECMAScript regular expression.
inline std::optional<std::regex> CompileKernelNamePattern(const std::string& pattern,
                                                          PatternError* error) {
  using pattern_internal::Compile;
  std::regex_constants::error_type code{};
  try {
    return Compile(pattern);
  } catch (const std::regex_error& failure) {
    code = failure.code();
  }
  if (error == nullptr) return std::nullopt;
  if (auto unpaired = pattern_internal::UnpairedBracket(pattern)) {
    *error = *unpaired;
    return std::nullopt;
  }
  // The shortest beginning with the same fault ends with the offending character.
  size_t length = 1;
  for (; length < pattern.size(); ++length) {
    try {
      Compile(pattern.substr(0, length));
    } catch (const std::regex_error& failure) {
      if (failure.code() == code) break;
    }
  }
  const bool repeats = std::string_view("*+?").find(pattern[length - 1]) != std::string_view::npos;
  *error = {repeats ? "nothing to repeat" : pattern_internal::TextOf(code), length};
  return std::nullopt;
}

}  // namespace ops_debug::proto
