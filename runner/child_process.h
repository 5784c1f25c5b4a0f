// Starting other programs: a compiler whose output is kept, or the user's program in the runner's
// place.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

struct ChildResult {
  int exit_code = 0;   // 128 + signal if a signal ended it
  std::string output;  // stdout and stderr, if captured
};

// Runs `arguments[0]`, a path, and waits. Captured children are tools, not targets: the preload
// library of ops-debug is taken out of their environment.
absl::StatusOr<ChildResult> RunCaptured(const std::vector<std::string>& arguments);

// Runs the program with our own streams and environment. Returns its exit code, 128 + signal if a
// signal ended it.
absl::StatusOr<int> RunInPlace(const std::vector<std::string>& arguments);

// Does not return on success.
absl::Status ReplaceBy(const std::vector<std::string>& arguments);

// A folder of its own, gone with everything in it when the object is.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Create();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace ops_debug::runner
