// One pass over the text that knows comments, strings and braces, and nothing else of PTX: what it
// does not recognise, it keeps.
#include "interposer/kernel_text.h"

#include <algorithm>

namespace ops_debug::interposer {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

// Behind the comment or string that starts at `at`; `at` itself if none does.
size_t BehindGap(std::string_view text, size_t at) {
  const auto behind = [&](std::string_view closing, size_t from) {
    const size_t found = text.find(closing, from);
    return found == std::string_view::npos ? text.size() : found + closing.size();
  };
  if (text.substr(at, 2) == "//") return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) == "/*") return behind("*/", at + 2);
  if (text[at] == '"') return behind("\"", at + 1);
  return at;
}

}  // namespace

std::unordered_set<std::string_view> NamesIn(std::string_view text) {
  std::unordered_set<std::string_view> names;
  for (size_t at = 0; at < text.size();) {
    if (const size_t behind = BehindGap(text, at); behind != at) {
      at = behind;
      continue;
    }
    size_t end = at;
    while (end < text.size() && IsNameCharacter(text[end])) end++;
    if (end > at) names.insert(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return names;
}

KernelText::KernelText(std::string_view ptx) : ptx_(ptx) {
  constexpr std::string_view kEntry = ".entry";
  size_t depth = 0;
  size_t statement = 0;  // where the directive at hand begins
  Entry entry;
  bool in_entry = false;
  for (size_t at = 0; at < ptx.size();) {
    if (const size_t behind = BehindGap(ptx, at); behind != at) {
      at = behind;
      continue;
    }
    const char c = ptx[at];
    if (c == '{') {
      depth++;
    } else if (c == '}') {
      if (depth > 0) depth--;
      if (depth == 0) {
        if (in_entry) {
          entry.end = at + 1;
          entries_.push_back(entry);
        }
        in_entry = false;
        statement = at + 1;
      }
    } else if (c == ';' && depth == 0) {
      in_entry = false;  // a declaration only
      statement = at + 1;
    } else if (depth == 0 && ptx.substr(at, kEntry.size()) == kEntry) {
      size_t name = at + kEntry.size();
      while (name < ptx.size() && !IsNameCharacter(ptx[name])) name++;
      size_t end = name;
      while (end < ptx.size() && IsNameCharacter(ptx[end])) end++;
      in_entry = true;
      entry = {ptx.substr(name, end - name), statement, 0};
      at = end;
      continue;
    } else if (depth == 0 && ptx.substr(at, 7) == ".debug_" && ptx.substr(at, 10) != ".debug_str") {
      whole_ = true;
    }
    at++;
  }
  // What stands before the first entry's own line is not the entry's: `.version` has no semicolon.
  for (Entry& found : entries_) {
    const size_t word = static_cast<size_t>(found.name.data() - ptx.data());
    const size_t line = ptx.rfind('\n', word);
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    found.begin = std::max(found.begin, begin);
  }
}

std::string KernelText::Of(const std::vector<std::string>& kernels) const {
  if (whole_) return std::string(ptx_);
  const auto wanted = [&](const Entry& entry) {
    return std::find(kernels.begin(), kernels.end(), entry.name) != kernels.end();
  };
  std::string text;
  size_t kept = 0;
  for (const Entry& entry : entries_) {
    if (wanted(entry)) continue;
    text.append(ptx_, kept, entry.begin - kept);
    const std::string_view body = ptx_.substr(entry.begin, entry.end - entry.begin);
    text.append(static_cast<size_t>(std::count(body.begin(), body.end(), '\n')), '\n');
    kept = entry.end;
  }
  text.append(ptx_, kept);
  const auto names = NamesIn(text);
  const bool named = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return !wanted(entry) && names.contains(entry.name);
  });
  return named ? std::string(ptx_) : text;
}

}  // namespace ops_debug::interposer
