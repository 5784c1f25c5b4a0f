// What the text of a .cu file tells that its PTX does not: names of kernel parameters, launch
// comments, and whether there is a main(). A scanner over comment-free text, not a C++ parser: what
// it does not recognise it leaves out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

struct SourceParameter {
  std::string type;  // "const float* __restrict__"
  std::string name;  // empty if the parameter has none
};

// `// ops-debug: block=256 grid=ceil(N/64),ceil(M/64) bins=shape:64` before a kernel, as key and
// value.
struct LaunchComment {
  uint32_t line = 0;
  std::vector<std::pair<std::string, std::string>> settings;
};

struct SourceKernel {
  std::string name;
  uint32_t line = 0;  // of __global__
  std::vector<SourceParameter> parameters;
  LaunchComment launch;  // line 0: none
};

struct SourceScan {
  bool has_main = false;
  std::vector<SourceKernel> kernels;
};

// `path` is for messages. Error: a launch comment with something that is not key=value.
absl::StatusOr<SourceScan> ScanSource(std::string_view text, std::string_view path);

}  // namespace ops_debug::runner
