// Findings that a user knows and accepts. A file of suppressions is a YAML list; an entry hides the
// findings that match all its keys:
//
//   - kind: oob-global                 # one kind, or a list of kinds
//     kernel: "softmax_kernel*"        # demangled name, or the bare name without its parameters
//     function: "load_tile*"           # device function that holds the access
//     file: "*/softmax.cu"             # source file of the access, or of the call on the host
//     line: 41
//     caller: "run_softmax"            # host or Python function on the way to launch or call
//     library: "libcudnn*"             # host library on that way
//     api: cuMemAllocAsync             # that allocated, or that failed
//     error: CUDA_ERROR_NOT_FOUND      # of a failed call or launch
//     tensor: "PyTorch *"              # framework and name of a tensor
//     reason: why this is accepted     # mandatory
//
// Texts are globs (fnmatch: * ? [abc], a backslash takes the next character as it is), or regular
// expressions behind "regex:". An entry must name a kind or a place, and a place that matches
// everything is none.
//
// Nothing disappears silently: what is hidden is counted by entry, and never checked findings stay
// not checked.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ops_debug::analysis {

class Suppressions {
 public:
  Suppressions();
  ~Suppressions();

  // Adds the entries of a file. Error: "FILE:LINE: what is wrong with it".
  absl::Status AddFile(const std::string& path, bool shipped);
  absl::Status AddText(const std::string& text, const std::string& path, bool shipped);

  // Moves what an entry matches from `findings` and `unproven` to `suppressed`. The first entry
  // that matches takes it.
  void Apply(Report& report) const;
  bool Matches(const Finding& finding) const;

 private:
  struct Entry;
  std::vector<std::unique_ptr<Entry>> entries_;
};

// An entry, ready to be pasted, that hides this finding and its like and no other.
std::string SuppressionFor(const Finding& finding);
// Gives each finding its entry, but for those that an earlier one's entry hides too.
void GenerateSuppressions(Report& report);

}  // namespace ops_debug::analysis
