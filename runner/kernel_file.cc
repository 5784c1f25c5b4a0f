#include "runner/kernel_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/status/status.h"
#include "proto/session.h"
#include "ptx/parser.h"
#include "runner/entry_choice.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return NoSuchFile(path);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return absl::InvalidArgumentError(
        StrCat("cannot read ", path, "\n  hint: it must be a file that you may read"));
  return text.str();
}

bool OnEmulator() {
  const char* value = std::getenv(proto::kEnvEmulator);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

absl::Status NoSuchFile(const std::string& path) {
  std::error_code ignored;
  return absl::InvalidArgumentError(StrCat("no such file: ", path,
                                           "\n  hint: the current folder is ",
                                           fs::current_path(ignored).string()));
}

bool IsSource(std::string_view path) { return path.ends_with(".cu"); }

absl::StatusOr<SourceScan> ScanFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  return IsSource(path) ? ScanSource(*text, path) : SourceScan();
}

CompileOptions CompileOptionsFor(const Device& device, const Options& options) {
  CompileOptions compile;
  compile.compute_capability = device.compute_capability();
  compile.debug_build = options.debug_build;
  compile.emulator = OnEmulator();
  compile.extra = options.nvcc_options;
  return compile;
}

absl::StatusOr<KernelFile> LoadKernelFile(const std::string& path, SourceScan scan,
                                          const CompileOptions& options) {
  KernelFile file;
  file.path = path;
  file.scan = std::move(scan);
  absl::StatusOr<std::string> text = absl::UnknownError("");
  if (IsSource(path)) {
    absl::StatusOr<std::string> nvcc = FindNvcc();
    if (!nvcc.ok()) return nvcc.status();
    text = CompileToPtx(*nvcc, path, options);
  } else {
    text = ReadFile(path);
  }
  if (!text.ok()) return text.status();
  file.ptx = *std::move(text);
  ptx::Result<ptx::Module> module = ptx::Parse(file.ptx);
  if (!module.ok()) {
    return absl::FailedPreconditionError(
        StrCat(path, ": the PTX is not understood: ", module.error().ToString(),
               "\n  hint: ptxas -arch=sm_90 ", path, " tells whether the file is right"));
  }
  file.entries = ReadEntries(*module);
  return file;
}

absl::StatusOr<Entry> EntryOf(const KernelFile& file, std::string_view wanted) {
  std::vector<Entry> candidates = file.entries;
  if (wanted.empty()) {
    std::set<std::string, std::less<>> backward;
    for (const Entry& entry : file.entries) {
      const std::string names = CommentValue(file, entry, "backward");
      for (std::string_view name : StrSplit(names, ",")) backward.emplace(name);
    }
    std::erase_if(candidates, [&](const Entry& entry) { return backward.contains(entry.name); });
    if (candidates.size() != 1) candidates = file.entries;
  }
  absl::StatusOr<Entry> entry = ChooseEntry(candidates, wanted, file.path);
  if (entry.ok()) ApplySource(file.scan, &*entry);
  return entry;
}

void ApplyComments(const KernelFile& file, const Entry& entry, LaunchRequest* request) {
  for (const SourceKernel& kernel : file.scan.kernels) {
    if (kernel.name == entry.name) ApplyLaunchComment(kernel.launch, request);
  }
}

std::string CommentValue(const KernelFile& file, const Entry& entry, std::string_view key) {
  std::string value;
  for (const SourceKernel& kernel : file.scan.kernels) {
    if (kernel.name != entry.name) continue;
    for (const auto& [name, text] : kernel.launch.settings) {
      if (name == key) value = text;
    }
  }
  return value;
}

}  // namespace ops_debug::runner
