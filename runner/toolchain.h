// nvcc: found, asked for the PTX of a kernel file or for a program, and quoted when it refuses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

struct CompileOptions {
  int compute_capability = 90;
  bool debug_build = false;        // -G, nothing inlined
  bool emulator = false;           // programs: shared cudart, PTX only
  std::vector<std::string> extra;  // passed on to nvcc
};

// CUDA_HOME and CUDA_PATH if set, else nvcc on PATH, /usr/local/cuda, and toolkit/ beside the
// runner's executable.
absl::StatusOr<std::string> FindNvcc();

// PTX text of `source`, with line info. Error code kAborted: the source does not compile; its
// message is nvcc's output.
absl::StatusOr<std::string> CompileToPtx(const std::string& nvcc, const std::string& source,
                                         const CompileOptions& options);

// Compiles a source with main() to `program`.
absl::Status CompileProgram(const std::string& nvcc, const std::string& source,
                            const std::string& program, const CompileOptions& options);

}  // namespace ops_debug::runner
