// Small text operations. Debian builds abseil with a string_view of its own, so absl::StrCat and
// its neighbours do not take std::string_view; these do.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"

namespace ops_debug::runner {

inline void AppendPart(std::string* text, std::string_view part) { text->append(part); }
inline void AppendPart(std::string* text, absl::string_view part) {
  text->append(part.data(), part.size());
}
inline void AppendPart(std::string* text, const std::string& part) { text->append(part); }
inline void AppendPart(std::string* text, const char* part) { text->append(part); }
template <std::integral T>
void AppendPart(std::string* text, T number) {
  text->append(std::to_string(number));
}

template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::string text;
  (AppendPart(&text, parts), ...);
  return text;
}

template <class... Parts>
void StrAppend(std::string* text, const Parts&... parts) {
  (AppendPart(text, parts), ...);
}

template <class Range>
std::string StrJoin(const Range& items, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& item : items) {
    if (!first) text.append(separator);
    first = false;
    AppendPart(&text, item);
  }
  return text;
}

// Parts between any of `separators`; empty ones too.
inline std::vector<std::string_view> StrSplit(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find_first_of(separators, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// True if all of `text` is one number of type T.
template <class T>
bool ParseNumber(std::string_view text, T* number) {
  const char* end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && behind == end && !text.empty();
}

}  // namespace ops_debug::runner
