// The scanner works on a copy of the text in which comments and literals are blanked, character for
// character, so that positions and lines stay those of the file.
#include "runner/source_scan.h"

#include <cctype>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

constexpr std::string_view kMark = "ops-debug:";

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

struct MarkedComment {
  size_t position = 0;    // of the mark in the text
  std::string_view text;  // behind the mark, to the end of its line
};

// Blanks comments and literals of `text` and collects the lines of comments that carry the mark.
std::string Blank(std::string_view text, std::vector<MarkedComment>* comments) {
  std::string blank(text);
  auto wipe = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (blank[i] != '\n') blank[i] = ' ';
    }
  };
  auto collect = [&](size_t begin, size_t end) {
    size_t at = begin;
    while ((at = text.find(kMark, at)) < end) {
      const size_t line_end = std::min(text.find('\n', at), end);
      const size_t after = at + kMark.size();
      // Only where the comment's line begins: prose may mention the mark too.
      size_t before = at;
      while (before > begin &&
             (IsSpace(text[before - 1]) || text[before - 1] == '*' || text[before - 1] == '/') &&
             text[before - 1] != '\n') {
        --before;
      }
      if (before == begin || text[before - 1] == '\n') {
        comments->push_back({at, text.substr(after, line_end - after)});
      }
      at = line_end;
    }
  };
  size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i, 2) == "//") {
      size_t end = text.find('\n', i);
      if (end == std::string_view::npos) end = text.size();
      collect(i, end);
      wipe(i, end);
      i = end;
    } else if (text.substr(i, 2) == "/*") {
      size_t end = text.find("*/", i + 2);
      end = end == std::string_view::npos ? text.size() : end + 2;
      collect(i, end);
      wipe(i, end);
      i = end;
    } else if (text.substr(i, 2) == "R\"" && (i == 0 || !IsWordChar(text[i - 1]))) {
      const size_t open = text.find('(', i);
      if (open == std::string_view::npos) break;
      const std::string closing = StrCat(")", text.substr(i + 2, open - i - 2), "\"");
      size_t end = text.find(closing, open);
      end = end == std::string_view::npos ? text.size() : end + closing.size();
      wipe(i, end);
      i = end;
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !IsWordChar(text[i - 1])))) {
      size_t end = i + 1;  // a ' inside a number separates digits
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
      }
      end = std::min(end + 1, text.size());
      wipe(i, end);
      i = end;
    } else {
      ++i;
    }
  }
  return blank;
}

uint32_t LineOf(std::string_view text, size_t position) {
  uint32_t line = 1;
  for (char c : text.substr(0, position)) line += c == '\n';
  return line;
}

// Index behind the bracket that closes the one at `open`; npos if none does.
size_t BehindClosing(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

bool IsTypeWord(std::string_view word) {
  for (std::string_view known :
       {"const", "volatile", "unsigned", "signed", "int", "char", "short", "long", "float",
        "double", "bool", "void", "__restrict__", "__restrict", "size_t"}) {
    if (word == known) return true;
  }
  return false;
}

// "const float* __restrict__ A = nullptr" -> {"const float* __restrict__", "A"}.
SourceParameter SplitDeclaration(std::string_view text) {
  text = Trim(text.substr(0, text.find('=')));
  bool array = false;
  if (const size_t bracket = text.find('['); bracket != std::string_view::npos) {
    text = Trim(text.substr(0, bracket));
    array = true;
  }
  size_t begin = text.size();
  while (begin > 0 && IsWordChar(text[begin - 1])) --begin;
  std::string_view name = text.substr(begin);
  std::string_view type = Trim(text.substr(0, begin));
  if (type.empty() || type.ends_with("::") || IsTypeWord(name)) {
    name = {};
    type = text;
  }
  return {StrCat(type, array ? "*" : ""), std::string(name)};
}

std::vector<SourceParameter> SplitParameters(std::string_view list) {
  std::vector<SourceParameter> parameters;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '(' || c == '<' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == '>' || c == ']' || c == '}') --depth;
    if (c != ',' || (depth != 0 && i < list.size())) continue;
    const std::string_view one = Trim(list.substr(begin, i - begin));
    if (!one.empty() && one != "void") parameters.push_back(SplitDeclaration(one));
    begin = i + 1;
  }
  return parameters;
}

// The kernel whose __global__ stands at `position` of the blanked text; empty name if it is not a
// function head.
SourceKernel ReadKernel(std::string_view blank, size_t position) {
  SourceKernel kernel;
  kernel.line = LineOf(blank, position);
  size_t at = position;
  std::string_view word;
  while (at < blank.size()) {
    if (IsWordChar(blank[at])) {
      size_t end = at;
      while (end < blank.size() && IsWordChar(blank[end])) ++end;
      word = blank.substr(at, end - at);
      at = end;
    } else if (blank[at] == '(') {
      const size_t behind = BehindClosing(blank, at);
      if (behind == std::string_view::npos) break;
      const bool attribute = word == "__launch_bounds__" || word == "__cluster_dims__" ||
                             word == "__attribute__" || word == "__maxnreg__" ||
                             word == "__block_size__" || word == "alignas";
      if (!attribute) {
        kernel.name = std::string(word);
        kernel.parameters = SplitParameters(blank.substr(at + 1, behind - at - 2));
        break;
      }
      at = behind;
    } else if (blank[at] == ';' || blank[at] == '{' || blank[at] == '}') {
      break;
    } else {
      ++at;
    }
  }
  return kernel;
}

absl::StatusOr<LaunchComment> ParseComment(const MarkedComment& comment, std::string_view text,
                                           std::string_view path) {
  LaunchComment launch;
  launch.line = LineOf(text, comment.position);
  std::string_view rest = comment.text;
  if (const size_t end = rest.find("*/"); end != std::string_view::npos) rest = rest.substr(0, end);
  while (!(rest = Trim(rest)).empty()) {
    size_t end = 0;
    while (end < rest.size() && !IsSpace(rest[end])) ++end;
    const std::string_view setting = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == setting.size()) {
      return absl::InvalidArgumentError(
          StrCat(path, ":", launch.line, ": '", setting,
                 "' in the launch comment is not key=value\n  hint: values hold no "
                 "spaces: // ops-debug: block=256 grid=ceil(n/256)"));
    }
    launch.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return launch;
}

bool HasMain(std::string_view blank) {
  size_t at = 0;
  while ((at = blank.find("main", at)) != std::string_view::npos) {
    const size_t end = at + 4;
    const bool whole =
        (at == 0 || !IsWordChar(blank[at - 1])) && (end >= blank.size() || !IsWordChar(blank[end]));
    const std::string_view before = Trim(blank.substr(0, at));
    const std::string_view behind = Trim(blank.substr(end));
    if (whole && before.ends_with("int") && behind.starts_with("(")) return true;
    if (whole && before.ends_with("auto") && behind.starts_with("(")) return true;
    at = end;
  }
  return false;
}

}  // namespace

absl::StatusOr<SourceScan> ScanSource(std::string_view text, std::string_view path) {
  std::vector<MarkedComment> comments;
  const std::string blank = Blank(text, &comments);
  SourceScan scan;
  scan.has_main = HasMain(blank);
  size_t next_comment = 0;
  size_t at = 0;
  while ((at = blank.find("__global__", at)) != std::string::npos) {
    SourceKernel kernel = ReadKernel(blank, at);
    // A comment belongs to the next kernel behind it; several lines add up.
    while (next_comment < comments.size() && comments[next_comment].position < at) {
      absl::StatusOr<LaunchComment> launch = ParseComment(comments[next_comment], text, path);
      if (!launch.ok()) return launch.status();
      if (kernel.launch.line == 0) kernel.launch.line = launch->line;
      for (auto& setting : launch->settings) kernel.launch.settings.push_back(std::move(setting));
      ++next_comment;
    }
    if (!kernel.name.empty()) scan.kernels.push_back(std::move(kernel));
    at += 10;
  }
  return scan;
}

}  // namespace ops_debug::runner
