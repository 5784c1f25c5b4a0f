// Finds nvcc and builds its command lines. Line info is always asked for, because findings name
// lines.
#include "runner/toolchain.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "runner/child_process.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

namespace fs = std::filesystem;

// nvcc includes cuda_runtime.h before everything else, so redefining the macro behind it wins.
// `inline` keeps the one-definition rule of headers; -G then inlines nothing.
constexpr char kDebugHeader[] =
    "#pragma once\n"
    "#include <cuda_runtime.h>\n"
    "#undef __forceinline__\n"
    "#define __forceinline__ __inline__\n";

bool IsExecutable(const fs::path& path) {
  return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

absl::Status WriteFile(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return absl::FailedPreconditionError(StrCat("cannot write ", path.string()));
  return absl::OkStatus();
}

absl::Status RunNvcc(std::vector<std::string> command, const std::string& source,
                     const CompileOptions& options, const std::string& folder) {
  command.insert(command.end(), {"-lineinfo"});
  if (options.debug_build) {
    const fs::path header = fs::path(folder) / "ops_debug_debug_build.h";
    if (absl::Status status = WriteFile(header, kDebugHeader); !status.ok()) return status;
    // -G takes the place of -lineinfo.
    std::erase(command, "-lineinfo");
    command.insert(command.end(), {"-G", "-g", "-include", header.string()});
  }
  command.insert(command.end(), options.extra.begin(), options.extra.end());
  command.push_back(source);
  absl::StatusOr<ChildResult> result = RunCaptured(command);
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) {
    return absl::AbortedError(
        StrCat(source, " does not compile; nvcc says:\n", result->output,
               "  hint: correct the source, or pass what nvcc needs: --nvcc-option=-Iinclude"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FindNvcc() {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* home = std::getenv(variable);
    if (home == nullptr || *home == '\0') continue;
    const fs::path nvcc = fs::path(home) / "bin/nvcc";
    if (IsExecutable(nvcc)) return nvcc.string();
    return absl::NotFoundError(StrCat("no nvcc: ", variable, " is ", home, ", but ", nvcc.string(),
                                      " is not there\n  hint: correct or unset ", variable));
  }
  std::vector<fs::path> candidates;
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    for (std::string_view folder : StrSplit(path, ":"))
      candidates.push_back(fs::path(folder) / "nvcc");
  }
  candidates.push_back("/usr/local/cuda/bin/nvcc");
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) candidates.push_back(self.parent_path() / "toolkit/bin/nvcc");
  for (const fs::path& candidate : candidates) {
    if (IsExecutable(candidate)) return candidate.string();
  }
  return absl::NotFoundError(
      "no nvcc on PATH, in /usr/local/cuda or beside ops-debug\n  hint: install a CUDA toolkit and "
      "set "
      "CUDA_HOME, or run "
      "scripts/setup.sh, which fetches one");
}

absl::StatusOr<std::string> CompileToPtx(const std::string& nvcc, const std::string& source,
                                         const CompileOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return folder.status();
  const std::string output = folder->path() + "/kernel.ptx";
  std::vector<std::string> command = {
      nvcc, "-ptx", StrCat("-arch=compute_", options.compute_capability), "-o", output};
  if (absl::Status status = RunNvcc(std::move(command), source, options, folder->path());
      !status.ok()) {
    return status;
  }
  std::ifstream file(output, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status CompileProgram(const std::string& nvcc, const std::string& source,
                            const std::string& program, const CompileOptions& options) {
  const std::string cc = StrCat(options.compute_capability);
  std::vector<std::string> command = {nvcc, "-o", program, "-gencode",
                                      StrCat("arch=compute_", cc, ",code=compute_", cc)};
  if (options.emulator) {
    command.insert(command.end(), {"-cudart", "shared"});
  } else {
    command.insert(command.end(), {"-gencode", StrCat("arch=compute_", cc, ",code=sm_", cc)});
  }
  return RunNvcc(std::move(command), source, options, fs::path(program).parent_path().string());
}

}  // namespace ops_debug::runner
