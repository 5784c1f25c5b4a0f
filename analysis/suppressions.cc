// yaml-cpp reads the file and knows the lines (suppressions.h has the format).
#include "analysis/suppressions.h"

#include <absl/strings/str_cat.h>
#include <fnmatch.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <regex>
#include <set>
#include <string_view>

#include "analysis/demangle.h"
#include "proto/kernel_name_pattern.h"

namespace ops_debug::analysis {
namespace {

constexpr std::string_view kRegex = "regex:";

// design.md, "Findings: one vocabulary", as far as checks exist.
constexpr std::array<std::string_view, 17> kKinds = {
    "oob-global",  "oob-shared",     "oob-local",          "use-after-free",
    "misaligned",  "race-shared",    "race-global",        "missing-warp-sync",
    "stream-race", "atomics-misuse", "uninitialised-read", "barrier-divergence",
    "deadlock",    "redundant-sync", "invalid-launch",     "failed-call",
    "leak"};

// What a text key is compared with; any of them may match.
using Candidates = std::vector<std::string>;

void AddTensor(const std::optional<AllocationInfo>& allocation, Candidates& texts) {
  if (!allocation || !allocation->tensor) return;
  texts.push_back(allocation->tensor->framework + ' ' + allocation->tensor->name);
}

// Of a race, either side may be what an entry names.
Candidates Kernels(const Finding& finding) {
  Candidates texts = {finding.kernel, BareName(finding.kernel)};
  for (const AccessInfo& side : finding.accesses) {
    texts.insert(texts.end(), {side.kernel, BareName(side.kernel)});
  }
  return texts;
}
Candidates Functions(const Finding& finding) {
  const std::string& function = finding.function.empty() ? finding.kernel : finding.function;
  Candidates texts = {function, BareName(function)};
  for (const AccessInfo& side : finding.accesses) {
    const std::string& other = side.function.empty() ? side.kernel : side.function;
    texts.insert(texts.end(), {other, BareName(other)});
  }
  return texts;
}
// The host side of a finding: who launched, called, or allocated what leaks.
struct HostSide {
  const std::vector<HostFrame>* stack = nullptr;
  const std::vector<PythonFrame>* python_stack = nullptr;
};
HostSide HostSideOf(const Finding& finding) {
  if (finding.call) return {&finding.call->stack, &finding.call->python_stack};
  if (finding.launch) return {&finding.launch->stack, &finding.launch->python_stack};
  if (!finding.allocation) return {};
  const AllocationInfo& allocation = *finding.allocation;
  return {&allocation.allocation_stack,
          allocation.tensor ? &allocation.tensor->allocation_stack : nullptr};
}

// The innermost place of a stack that its author knows.
std::optional<SourceLocation> OwnPlace(const std::vector<HostFrame>* stack,
                                       const std::vector<PythonFrame>* python_stack) {
  if (python_stack != nullptr) {
    const PythonFrame* own = OwnFrame(*python_stack);
    if (own != nullptr) return SourceLocation{own->function, own->file, own->line};
  }
  if (stack == nullptr) return std::nullopt;
  for (const HostFrame& frame : *stack) {
    if (frame.line > 0) return SourceLocation{frame.function, frame.file, frame.line};
  }
  return std::nullopt;
}

// Where the fault is: in device code; for findings of the host side, the innermost place that its
// author knows.
std::optional<SourceLocation> PlaceOf(const Finding& finding) {
  if (!finding.frames.empty()) return finding.frames.front();
  if (!finding.space.empty()) return std::nullopt;  // an access without line info
  const HostSide host = HostSideOf(finding);
  return OwnPlace(host.stack, host.python_stack);
}

// All places by which an entry may name the finding: of a race, those of both sides.
std::vector<SourceLocation> PlacesOf(const Finding& finding) {
  std::vector<SourceLocation> places;
  if (const std::optional<SourceLocation> place = PlaceOf(finding)) places.push_back(*place);
  for (const AccessInfo& side : finding.accesses) {
    if (!side.frames.empty()) places.push_back(side.frames.front());
    if (side.operation.empty()) continue;
    const std::optional<SourceLocation> place = OwnPlace(&side.stack, &side.python_stack);
    if (place) places.push_back(*place);
  }
  return places;
}

Candidates Files(const Finding& finding) {
  Candidates texts;
  for (const SourceLocation& place : PlacesOf(finding)) texts.push_back(place.file);
  return texts;
}
Candidates Callers(const Finding& finding) {
  Candidates texts;
  const HostSide host = HostSideOf(finding);
  if (host.stack != nullptr) {
    for (const HostFrame& frame : *host.stack) {
      texts.push_back(frame.function);
      texts.push_back(BareName(frame.function));
    }
  }
  if (host.python_stack != nullptr) {
    for (const PythonFrame& frame : *host.python_stack) texts.push_back(frame.function);
  }
  return texts;
}
Candidates Libraries(const Finding& finding) {
  Candidates texts;
  const HostSide host = HostSideOf(finding);
  if (host.stack == nullptr) return texts;
  for (const HostFrame& frame : *host.stack) {
    texts.push_back(frame.module);
    texts.push_back(frame.module.substr(frame.module.rfind('/') + 1));
  }
  return texts;
}
Candidates Apis(const Finding& finding) {
  Candidates texts;
  if (finding.call) texts.push_back(finding.call->api);
  if (finding.allocation) texts.push_back(finding.allocation->api);
  for (const AccessInfo& side : finding.accesses) {
    if (!side.operation.empty()) texts.push_back(side.operation);
  }
  return texts;
}
Candidates Errors(const Finding& finding) {
  return finding.call ? Candidates{finding.call->error} : Candidates();
}
Candidates Tensors(const Finding& finding) {
  Candidates texts;
  AddTensor(finding.allocation, texts);
  AddTensor(finding.target_allocation, texts);
  return texts;
}

struct TextKey {
  const char* name;
  Candidates (*candidates)(const Finding& finding);
};
constexpr TextKey kTextKeys[] = {
    {"kernel", Kernels},    {"function", Functions}, {"file", Files},   {"caller", Callers},
    {"library", Libraries}, {"api", Apis},           {"error", Errors}, {"tensor", Tensors},
};

bool IsKey(const std::string& name) {
  return name == "kind" || name == "line" || name == "reason" ||
         std::any_of(std::begin(kTextKeys), std::end(kTextKeys),
                     [&name](const TextKey& key) { return name == key.name; });
}

std::string KeyNames() {
  std::string names = "kind";
  for (const TextKey& key : kTextKeys) names += std::string(", ") + key.name;
  return names + ", line, reason";
}

std::string KindNames() {
  std::string names;
  for (const std::string_view kind : kKinds) {
    if (!kind.empty()) names += (names.empty() ? "" : ", ") + std::string(kind);
  }
  return names;
}

bool MatchesEverything(const std::string& glob) {
  return glob.find_first_not_of('*') == std::string::npos;
}

// A mistake in a file, on its way to AddText.
struct Mistake {
  int line = 0;  // from 0
  std::string text;
};

class Pattern {
 public:
  Pattern(std::string text, int line) : text_(std::move(text)) {
    if (text_.rfind(kRegex, 0) != 0) return;
    proto::PatternError error;
    regex_ = proto::CompileKernelNamePattern(text_.substr(kRegex.size()), &error);
    if (!regex_) {
      throw Mistake{line, "not a regular expression: " + error.text + " (character " +
                              std::to_string(error.position) + " of \"" +
                              text_.substr(kRegex.size()) + "\")"};
    }
  }
  // Says nothing about where.
  bool matches_everything() const {
    return regex_ ? std::regex_match("", *regex_) : MatchesEverything(text_);
  }
  bool Matches(const std::string& text) const {
    if (regex_) return std::regex_search(text, *regex_);
    return fnmatch(text_.c_str(), text.c_str(), 0) == 0;
  }

 private:
  std::string text_;
  std::optional<std::regex> regex_;
};

std::string ScalarOf(const std::string& key, const YAML::Node& value) {
  if (!value.IsScalar()) throw Mistake{value.Mark().line, key + ": expected a text"};
  return value.Scalar();
}

std::string KindOf(const YAML::Node& value) {
  const std::string kind = ScalarOf("kind", value);
  if (kind.empty() || std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    throw Mistake{value.Mark().line, "unknown kind \"" + kind + "\" (known: " + KindNames() + ')'};
  }
  return kind;
}

}  // namespace

struct Suppressions::Entry {
  SuppressionUse use;  // its count stays 0
  std::vector<std::string> kinds;
  std::vector<std::pair<const TextKey*, Pattern>> patterns;
  std::optional<uint32_t> source_line;

  explicit Entry(const YAML::Node& node) {
    use.line = static_cast<uint32_t>(node.Mark().line + 1);
    if (!node.IsMap()) {
      throw Mistake{node.Mark().line, "expected an entry such as \"- kind: leak\""};
    }
    std::set<std::string> seen;
    for (const auto& pair : node) {
      const std::string key = ScalarOf("a key", pair.first);
      if (!seen.insert(key).second) {
        throw Mistake{pair.first.Mark().line, key + " is given twice"};
      }
      Read(key, pair.first, pair.second);
    }
    if (use.reason.empty()) {
      throw Mistake{node.Mark().line, "the entry has no reason: say why this finding is accepted"};
    }
    const bool has_place = std::any_of(patterns.begin(), patterns.end(), [](const auto& pattern) {
      return !pattern.second.matches_everything();
    });
    if (kinds.empty() && !has_place) {
      throw Mistake{
          node.Mark().line,
          "the entry would hide every finding: name a kind, or a kernel, file, library..."};
    }
  }

  void Read(const std::string& key, const YAML::Node& name, const YAML::Node& value) {
    if (!IsKey(key)) {
      throw Mistake{name.Mark().line, "unknown key \"" + key + "\" (known: " + KeyNames() + ')'};
    }
    if (key == "kind") {
      if (value.IsSequence()) {
        for (const YAML::Node& kind : value) kinds.push_back(KindOf(kind));
      } else {
        kinds.push_back(KindOf(value));
      }
      return;
    }
    const std::string text = ScalarOf(key, value);
    if (text.empty()) throw Mistake{name.Mark().line, key + ": expected a text"};
    if (key == "reason") {
      use.reason = text;
    } else if (key == "line") {
      uint32_t number = 0;
      if (!YAML::convert<uint32_t>::decode(value, number) || number == 0) {
        throw Mistake{value.Mark().line, "line: expected a line number"};
      }
      source_line = number;
    } else {
      const auto* text_key =
          std::find_if(std::begin(kTextKeys), std::end(kTextKeys),
                       [&key](const TextKey& known) { return key == known.name; });
      patterns.emplace_back(text_key, Pattern(text, value.Mark().line));
    }
  }

  bool FileMatches(const std::string& file) const {
    return std::all_of(patterns.begin(), patterns.end(), [&file](const auto& pattern) {
      return pattern.first->candidates != Files || pattern.second.Matches(file);
    });
  }

  bool Matches(const Finding& finding) const {
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), finding.kind) == kinds.end()) {
      return false;
    }
    if (source_line) {
      // A line belongs to a file: both must name the same side of a race.
      const std::vector<SourceLocation> places = PlacesOf(finding);
      if (std::none_of(places.begin(), places.end(), [this](const SourceLocation& place) {
            return place.line == *source_line && FileMatches(place.file);
          })) {
        return false;
      }
    }
    return std::all_of(patterns.begin(), patterns.end(), [&finding](const auto& pattern) {
      const Candidates texts = pattern.first->candidates(finding);
      return std::any_of(texts.begin(), texts.end(), [&pattern](const std::string& text) {
        return pattern.second.Matches(text);
      });
    });
  }
};

Suppressions::Suppressions() = default;
Suppressions::~Suppressions() = default;

absl::Status Suppressions::AddFile(const std::string& path, bool shipped) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             std::fclose);
  std::string text;
  char part[4096];
  for (size_t size = 1; file && size > 0;) {
    size = std::fread(part, 1, sizeof(part), file.get());
    text.append(part, size);
  }
  if (!file || std::ferror(file.get()) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot read suppressions from \"", path, "\": ", strerror(errno)));
  }
  return AddText(text, path, shipped);
}

absl::Status Suppressions::AddText(const std::string& text, const std::string& path, bool shipped) {
  const auto wrong = [&path](int line, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", line + 1, ": ", what));
  };
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return absl::OkStatus();  // comments only
    if (!root.IsSequence())
      return wrong(root.Mark().line, "expected a list of entries (- kind: ...)");
    for (const YAML::Node& node : root) {
      auto entry = std::make_unique<Entry>(node);
      entry->use.file = path;
      entry->use.shipped = shipped;
      entries_.push_back(std::move(entry));
    }
  } catch (const Mistake& mistake) {
    return wrong(mistake.line, mistake.text);
  } catch (const YAML::Exception& error) {
    return wrong(error.mark.line, "not YAML: " + error.msg);
  }
  return absl::OkStatus();
}

bool Suppressions::Matches(const Finding& finding) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&finding](const auto& entry) { return entry->Matches(finding); });
}

void Suppressions::Apply(Report& report) const {
  for (const auto& entry : entries_) report.suppressions.push_back(entry->use);
  for (std::vector<Finding>* findings : {&report.findings, &report.unproven}) {
    std::vector<Finding> left;
    for (Finding& finding : *findings) {
      const auto found =
          std::find_if(entries_.begin(), entries_.end(),
                       [&finding](const auto& entry) { return entry->Matches(finding); });
      if (found == entries_.end()) {
        left.push_back(std::move(finding));
        continue;
      }
      const auto index = static_cast<size_t>(found - entries_.begin());
      ++report.suppressions[index].findings;
      report.suppressed.push_back({std::move(finding), index});
    }
    *findings = std::move(left);
  }
}

namespace {

// Takes every character as it is.
std::string GlobOf(const std::string& text) {
  std::string glob;
  for (const char c : text) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) glob += '\\';
    glob += c;
  }
  // A text that looks like our mark for regular expressions.
  return glob.rfind(kRegex, 0) == 0 ? '\\' + glob : glob;
}

void Put(YAML::Emitter& out, const char* key, const std::string& value) {
  if (value.empty()) return;
  // Without escapes where that can be: the text then looks like what it matches.
  const bool plain =
      std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
  out << YAML::Key << key << YAML::Value << (plain ? YAML::SingleQuoted : YAML::DoubleQuoted)
      << value;
}

// For a host side without lines: function and library of the innermost frame.
void PutCaller(YAML::Emitter& out, const HostSide& host) {
  if (host.stack == nullptr || host.stack->empty()) return;
  const HostFrame& frame = host.stack->front();
  Put(out, "caller", GlobOf(frame.function));
  Put(out, "library", GlobOf(frame.module.substr(frame.module.rfind('/') + 1)));
}

}  // namespace

std::string SuppressionFor(const Finding& finding) {
  YAML::Emitter out;
  out << YAML::BeginSeq << YAML::BeginMap;
  out << YAML::Key << "kind" << YAML::Value << finding.kind;
  Put(out, "kernel", GlobOf(finding.kernel));
  Put(out, "function", GlobOf(finding.function));
  if (const std::optional<SourceLocation> place = PlaceOf(finding)) {
    // Another checkout is in another folder.
    const size_t slash = place->file.rfind('/');
    Put(out, "file",
        slash == std::string::npos ? GlobOf(place->file) : '*' + GlobOf(place->file.substr(slash)));
    if (place->line > 0) out << YAML::Key << "line" << YAML::Value << place->line;
  } else if (finding.space.empty()) {
    PutCaller(out, HostSideOf(finding));
  }
  if (finding.call) {
    Put(out, "api", GlobOf(finding.call->api));
    Put(out, "error", GlobOf(finding.call->error));
  } else if (finding.kind == "leak" && finding.allocation) {
    Put(out, "api", GlobOf(finding.allocation->api));
    if (finding.allocation->tensor) {
      Put(out, "tensor",
          GlobOf(finding.allocation->tensor->framework + ' ' + finding.allocation->tensor->name));
    }
  }
  Put(out, "reason", "accepted: " + finding.message);
  out << YAML::EndMap << YAML::EndSeq;
  return std::string(out.c_str()) + '\n';
}

void GenerateSuppressions(Report& report) {
  Suppressions generated;
  for (std::vector<Finding>* findings : {&report.findings, &report.unproven}) {
    for (Finding& finding : *findings) {
      if (generated.Matches(finding)) continue;
      finding.suppression = SuppressionFor(finding);
      generated.AddText(finding.suppression, "", false).IgnoreError();
    }
  }
}

}  // namespace ops_debug::analysis
