// Lines of source files, for showing beside a finding.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ops_debug::analysis {

class SourceLines {
 public:
  // Line `line` (from 1) without its newline; nothing if the file is not readable, not a plain
  // file, or too short.
  std::optional<std::string> Find(const std::string& path, uint32_t line);

 private:
  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace ops_debug::analysis
