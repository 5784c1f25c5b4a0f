// Where a report is written: a file that is either whole or not there, or a stream.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <utility>

namespace ops_debug::analysis {

// All of it, however often the system takes a part. False and errno on failure.
bool WriteAll(int fd, const std::string& text);

// Whether a report to `fd` may be coloured: a terminal that can, and no NO_COLOR (no-color.org).
bool WantsColour(int fd);

class ReportFile {
 public:
  // `path` "-": standard output; empty: `stream`. Opened early, so that a run of hours does not end
  // with "no such directory"; an old report under that name is gone from here on.
  static absl::StatusOr<ReportFile> Open(const std::string& path, int stream);
  ReportFile(ReportFile&& other) noexcept : ReportFile() { *this = std::move(other); }
  ReportFile& operator=(ReportFile&& other) noexcept;
  ~ReportFile();

  int fd() const { return fd_; }  // to ask whether it is a terminal
  // Once. A killed process leaves an empty file or the whole report, never a part of it, as long as
  // the folder can be written. A stream whose reader has gone away is no error: what it did not
  // want to read is not missing.
  absl::Status Write(const std::string& text);
  // A run that ends without a report leaves no file that could be taken for one.
  void Discard();

 private:
  ReportFile() = default;

  int fd_ = -1;
  bool owned_ = false;
  std::string path_;  // of a regular file, with links resolved; empty for streams
};

}  // namespace ops_debug::analysis
