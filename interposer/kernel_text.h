// The PTX that one kernel of a module needs, for a capture: a module may hold hundreds of kernels,
// and the CPU device would parse them all. The other entries become empty lines, so that lines keep
// their numbers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace ops_debug::interposer {

// Every word of `text` that may be a name of PTX (ISA 9.0, 4.4); views into it.
std::unordered_set<std::string_view> NamesIn(std::string_view text);

class KernelText {
 public:
  // Finds the entries; `ptx` must outlive this.
  explicit KernelText(std::string_view ptx);

  // The module without entries that are not among `kernels`. All of it if that is not safe: an
  // entry is named elsewhere (device-side launches), or debug sections refer to labels.
  std::string Of(const std::vector<std::string>& kernels) const;

 private:
  struct Entry {
    std::string_view name;
    size_t begin = 0, end = 0;  // from its linkage to behind its closing brace
  };

  std::string_view ptx_;
  bool whole_ = false;  // nothing can be left out
  std::vector<Entry> entries_;
};

}  // namespace ops_debug::interposer
