// Lines are read here rather than as YAML, where most regular expressions would have to be quoted.
#include "analysis/compare/name_map.h"

#include <cctype>
#include <fstream>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/kernel_name_pattern.h"

namespace ops_debug::analysis {
namespace {

std::string_view Trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// A word at the front of `text`, quoted or up to `end`; removes both. False: an open quote, or no
// `end`.
bool TakeWord(std::string_view* text, std::string_view end, std::string* word) {
  if (!text->empty() && (text->front() == '"' || text->front() == '\'')) {
    const size_t close = text->find(text->front(), 1);
    if (close == std::string_view::npos) return false;
    *word = text->substr(1, close - 1);
    text->remove_prefix(close + 1);
    *text = Trimmed(*text);
    if (end.empty()) return text->empty();
    const std::string_view sign = Trimmed(end);
    if (!text->starts_with(sign)) return false;
    text->remove_prefix(sign.size());
  } else if (end.empty()) {
    *word = *text;
    *text = {};
  } else {
    const size_t at = text->find(end);
    if (at == std::string_view::npos) return false;
    *word = Trimmed(text->substr(0, at));
    text->remove_prefix(at + end.size());
  }
  *text = Trimmed(*text);
  return !word->empty();
}

// A dot alone is part of many names and makes no pattern.
bool LooksLikePattern(const std::string& name) {
  return name.find_first_of("\\()[]{}*+?|^$") != std::string::npos;
}

// \1 as std::regex's format wants it: $1; its own signs stand for themselves.
std::string FormatOf(const std::string& reference) {
  std::string format;
  for (size_t i = 0; i < reference.size(); ++i) {
    const bool is_group = reference[i] == '\\' && i + 1 < reference.size() &&
                          std::isdigit(static_cast<unsigned char>(reference[i + 1])) != 0;
    if (is_group) {
      format +=
          absl::StrCat("$0", reference.substr(++i, 1));  // two digits, so that a digit may follow
    } else if (reference[i] == '$') {
      format += "$$";
    } else {
      format += reference[i];
    }
  }
  return format;
}

}  // namespace

absl::Status NameMap::AddRule(const std::string& line) {
  std::string_view text = line;
  Rule rule;
  if (!TakeWord(&text, ": ", &rule.candidate) || !TakeWord(&text, "", &rule.reference)) {
    return absl::InvalidArgumentError("expected \"CANDIDATE: REFERENCE\"");
  }
  if (LooksLikePattern(rule.candidate)) {
    proto::PatternError error;
    rule.pattern = proto::CompileKernelNamePattern(rule.candidate, &error);
    if (!rule.pattern) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", rule.candidate, "\", character ", error.position, ": ", error.text));
    }
  }
  rules_.push_back(std::move(rule));
  return absl::OkStatus();
}

absl::StatusOr<NameMap> NameMap::Parse(const std::string& text, const std::string& path) {
  NameMap map;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view content = Trimmed(line);
    if (content.empty() || content.front() == '#') continue;
    if (absl::Status status = map.AddRule(std::string(content)); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", path, "\", line ", number, ": ", status.message()));
    }
  }
  return map;
}

absl::StatusOr<NameMap> NameMap::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    // An empty file leaves the stream failed, too, and is a mistake of its own.
    return absl::NotFoundError(absl::StrCat("\"", path, "\": no names can be read from it"));
  }
  return Parse(text.str(), path);
}

std::optional<std::string> NameMap::ReferenceOf(
    const std::string& candidate, const std::function<bool(const std::string&)>& exists) const {
  for (const Rule& rule : rules_) {
    if (rule.candidate != candidate) continue;
    rule.used = true;
    return rule.reference;
  }
  for (const Rule& rule : rules_) {
    std::smatch match;
    if (!rule.pattern || !std::regex_match(candidate, match, *rule.pattern)) continue;
    const std::string reference = match.format(FormatOf(rule.reference));
    if (!exists(reference)) continue;
    rule.used = true;
    return reference;
  }
  return std::nullopt;
}

std::vector<std::string> NameMap::UnusedRules() const {
  std::vector<std::string> unused;
  for (const Rule& rule : rules_) {
    if (!rule.used) unused.push_back(absl::StrCat(rule.candidate, ": ", rule.reference));
  }
  return unused;
}

}  // namespace ops_debug::analysis
