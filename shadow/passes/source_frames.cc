// Reads `.file` and `.debug_str` once per module; a frame chain is walked backwards through the
// function's `.loc`s.
#include "shadow/passes/source_frames.h"

#include <charconv>

namespace ops_debug::shadow {
namespace {

constexpr int kMaxInlineDepth = 64;

// Section text is "label: .b8 n, n, ... label: ...": strings as numbers, ended by 0.
void ReadDebugStrings(std::string_view section,
                      std::map<std::string, std::string, std::less<>>& names) {
  std::string* current = nullptr;
  size_t at = section.find('{');
  if (at == std::string_view::npos) return;
  at++;
  bool ended = true;
  while (at < section.size()) {
    const char c = section[at];
    if (c == '$' || c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
      const size_t end = section.find_first_of(": \t\r\n", at);
      if (end == std::string_view::npos) return;
      current = &names[std::string(section.substr(at, end - at))];
      ended = false;
      at = end + 1;
    } else if (c >= '0' && c <= '9') {
      int number = 0;
      const auto [end, error] =
          std::from_chars(section.data() + at, section.data() + section.size(), number);
      at = static_cast<size_t>(end - section.data());
      if (number == 0) ended = true;
      if (!ended && current != nullptr) current->push_back(static_cast<char>(number));
    } else if (c == '.') {  // .b8
      at = section.find_first_of(" \t\r\n", at);
      if (at == std::string_view::npos) return;
    } else {
      at++;
    }
  }
}

}  // namespace

SourceFrames::SourceFrames(const ptx::Module& module) {
  for (const ptx::Item& item : module.items) {
    if (const auto* file = std::get_if<ptx::File>(&item)) files_[file->index] = file->path;
    if (const auto* raw = std::get_if<ptx::RawDirective>(&item)) {
      if (raw->text.starts_with(".section") && raw->text.find(".debug_str") < raw->text.find('{')) {
        ReadDebugStrings(raw->text, names_);
      }
    }
  }
}

std::string SourceFrames::FilePath(uint32_t index) const {
  const auto found = files_.find(index);
  return found == files_.end() ? std::string() : found->second;
}

std::vector<SourceFrame> SourceFrames::Of(const ptx::Function& function, uint32_t loc) const {
  std::vector<SourceFrame> frames;
  for (int depth = 0; loc != 0 && loc < function.locs.size() && depth < kMaxInlineDepth; depth++) {
    const ptx::Loc& place = function.locs[loc];
    SourceFrame frame;
    frame.file = FilePath(place.file);
    frame.line = place.line;
    frame.column = place.column;
    if (const auto name = names_.find(place.function_name); name != names_.end())
      frame.function = name->second;
    frames.push_back(std::move(frame));
    if (place.inlined_at_file == 0) break;
    // The nearest earlier `.loc` of the calling place; if none was emitted, the place itself ends
    // the chain.
    uint32_t caller = loc - 1;
    while (caller > 0) {
      const ptx::Loc& candidate = function.locs[caller];
      if (candidate.file == place.inlined_at_file && candidate.line == place.inlined_at_line &&
          candidate.column == place.inlined_at_column) {
        break;
      }
      caller--;
    }
    if (caller == 0) {
      frames.push_back(
          {"", FilePath(place.inlined_at_file), place.inlined_at_line, place.inlined_at_column});
      break;
    }
    loc = caller;
  }
  return frames;
}

}  // namespace ops_debug::shadow
