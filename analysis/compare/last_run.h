// What an `ops-debug diff` without files compares: the pair of tensor files that `ops-debug
// validate` left in the user's state folder (proto/state_folder.h), or the last two runs with
// --capture, whichever was later.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tensor_file.h"

namespace ops_debug::analysis {

struct LastRun {
  std::string kind;                  // "validate" or "capture"
  std::string candidate, reference;  // tensor files, or folders of them
  std::string title;                 // "matmul.cu against builtin:matmul"
};

// Keeps both sets as .safetensors in the folder, with `run`'s kind and title, in place of the pair
// before; the folder is made.
absl::Status KeepLastRun(const LastRun& run, const proto::TensorSet& candidate,
                         const proto::TensorSet& reference);

// Errors say what to do: nothing was kept, or the note of it cannot be read.
absl::StatusOr<LastRun> FindLastRun();

}  // namespace ops_debug::analysis
