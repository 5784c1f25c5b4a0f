// Reads each file once. Paths come from debug information, so anything may stand behind them: only
// plain files of a source file's size are opened.
#include "analysis/source_lines.h"

#include <filesystem>
#include <fstream>

namespace ops_debug::analysis {
namespace {

constexpr uintmax_t kMaxFileBytes = 16 << 20;

std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return lines;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) return lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

std::optional<std::string> SourceLines::Find(const std::string& path, uint32_t line) {
  auto file = files_.find(path);
  if (file == files_.end()) file = files_.emplace(path, ReadLines(path)).first;
  if (line == 0 || line > file->second.size()) return std::nullopt;
  return file->second[line - 1];
}

}  // namespace ops_debug::analysis
