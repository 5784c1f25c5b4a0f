// Reading and writing tensors: .npy (NumPy format 1-3), .npz (stored and deflated), .safetensors,
// or a folder of such files. Files are untrusted: every size is checked against the file before
// memory is touched.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tensor.h"

namespace ops_debug::proto {

struct TensorSet {
  std::string path;
  std::vector<Tensor> tensors;  // in the order of the file; a folder's by its files' metadata
                                // "sequence", else by name
  std::map<std::string, std::string>
      metadata;  // safetensors' __metadata__; in a folder "FILE-STEM/KEY"
};

// Maps the file; nothing is read before it is used, except what is deflated. Names: an .npy's stem,
// the member's name without ".npy", the safetensors key; in a folder "FILE-STEM" of .npy,
// "FILE-STEM/NAME" of containers;
// subfolders "process-PID", as run --capture leaves them, are read too: "process0/...", counted in
// the order of PIDs, or without that if there is but one. Hidden files are left out. Errors say
// which file, what is wrong with it and at which byte: no such file, unknown format, truncated, bad
// header, unknown type, object arrays, duplicate names, overlapping or misplaced data.
absl::StatusOr<TensorSet> ReadTensors(const std::string& path);

// One .safetensors file, dense, in the given order; replaced atomically. bf16, fp8 and complex
// included (complex64 as "C64").
absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace ops_debug::proto
