// A kernel file, ready to launch from: its PTX, the entries in it, and what its source says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/device.h"
#include "runner/options.h"
#include "runner/signature.h"
#include "runner/source_scan.h"
#include "runner/toolchain.h"

namespace ops_debug::runner {

struct KernelFile {
  std::string path;
  std::string ptx;
  SourceScan scan;  // empty for PTX
  std::vector<Entry> entries;
};

absl::Status NoSuchFile(const std::string& path);
bool IsSource(std::string_view path);  // a .cu file

// What the source says; nothing of a .ptx file. Error: no such file, a bad launch comment.
absl::StatusOr<SourceScan> ScanFile(const std::string& path);

CompileOptions CompileOptionsFor(const Device& device, const Options& options);

// Compiles a .cu file, reads a .ptx file. Error code kAborted: it does not compile.
absl::StatusOr<KernelFile> LoadKernelFile(const std::string& path, SourceScan scan,
                                          const CompileOptions& options);

// The entry that `wanted` names (runner/entry_choice.h), with names and types from the source.
// Where nothing is wanted and all kernels but one are the backward kernels of that one, it is
// meant.
absl::StatusOr<Entry> EntryOf(const KernelFile& file, std::string_view wanted);

// The kernel's launch comment completes `request`.
void ApplyComments(const KernelFile& file, const Entry& entry, LaunchRequest* request);
// The last value of `key` in the entry's launch comment; empty: it does not say.
std::string CommentValue(const KernelFile& file, const Entry& entry, std::string_view key);

}  // namespace ops_debug::runner
