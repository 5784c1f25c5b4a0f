// The runner's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/launch_plan.h"

namespace ops_debug::runner {

struct Options {
  bool help = false;
  std::string kernel;  // FILE.cu, FILE.ptx or a program
  std::string entry;   // mangled or demangled name, or a part that only one entry has
  LaunchRequest launch;
  bool debug_build = false;
  uint64_t seed = 0;
  std::string save_outputs;  // folder, empty: do not save
  std::vector<std::string> nvcc_options;
  // Provider mode (proto/provider.h): `kernel` is the operator, `program_arguments` are pairs of
  // request and response.
  bool provider = false;
  std::string describe;  // a JSON object, empty: answer requests
  std::vector<std::string>
      backward;  // kernels of the gradients, in order; empty: as in the comment
  std::vector<std::string> program_arguments;
};

absl::StatusOr<Options> ParseOptions(int argc, char** argv);

std::string HelpText();

}  // namespace ops_debug::runner
