// The command line of `ops-debug validate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/tensor.h"

namespace ops_debug::analysis {

struct ValidateOptions {
  std::string op, reference, trusted;
  std::vector<std::vector<int64_t>> input_shapes;           // in the order of inputs
  std::vector<std::pair<std::string, std::string>> inputs;  // NAME=FILE, shape or contents
  std::vector<std::pair<std::string, std::string>> attributes;
  std::optional<proto::DType> dtype;  // of the floating inputs
  std::optional<double> rtol, atol;
  bool gradients = false, sweep = false;
  uint64_t seed = 0;
  std::string format = "text";  // json, html
  std::string output;           // empty: stdout
  bool heatmap = false;
  std::string device = "emulator";  // or "gpu": as the launcher has chosen
  std::string python;               // empty: OPS_DEBUG_PYTHON, else python3
  int error_exit_code = 86;
};

// `argv[0]` is "validate". Errors say which flag is wrong and what it takes.
absl::StatusOr<ValidateOptions> ParseValidateOptions(int argc, const char* const* argv);

// "1x32x224x224"; false: not a shape.
bool ParseShape(const std::string& text, std::vector<int64_t>* shape);

}  // namespace ops_debug::analysis
