// Regular files are replaced by rename(2), which is atomic; whatever else --output may name (a
// pipe, /dev/stdout) is written directly.
#include "analysis/report_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace ops_debug::analysis {

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = write(fd, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

bool WantsColour(int fd) {
  const char* terminal = getenv("TERM");
  return isatty(fd) == 1 && getenv("NO_COLOR") == nullptr && terminal != nullptr &&
         strcmp(terminal, "dumb") != 0;
}

namespace {

std::string Resolved(const std::string& path) {
  char* text = realpath(path.c_str(), nullptr);
  std::string resolved = text != nullptr ? text : path;
  free(text);
  return resolved;
}

// 0, or errno. The launcher knows the ending of the name: it cleans up behind a killed analyzer.
int Replace(const std::string& path, mode_t mode, const std::string& text, bool* impossible) {
  const std::string partial = path + ".partial";
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  *impossible = fd < 0;
  if (fd < 0) return errno;
  const bool written = WriteAll(fd, text) && fchmod(fd, mode & 07777) == 0;
  int fault = written ? 0 : errno;
  if (close(fd) != 0 && fault == 0) fault = errno;  // network file systems tell only here
  if (fault == 0 && rename(partial.c_str(), path.c_str()) != 0) fault = errno;
  if (fault != 0) unlink(partial.c_str());
  return fault;
}

}  // namespace

absl::StatusOr<ReportFile> ReportFile::Open(const std::string& path, int stream) {
  ReportFile file;
  if (path.empty() || path == "-") {
    file.fd_ = path.empty() ? stream : STDOUT_FILENO;
    return file;
  }
  // Not blocking: a named pipe that nobody reads must not hold up a run before it began. Its reader
  // may be starting just now.
  constexpr std::chrono::milliseconds kPatience{2000}, kPause{10};
  for (auto waited = kPatience * 0; waited < kPatience; waited += kPause) {
    file.fd_ =
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (file.fd_ >= 0 || errno != ENXIO) break;
    std::this_thread::sleep_for(kPause);
  }
  file.owned_ = true;
  if (file.fd_ < 0) {
    return absl::ErrnoToStatus(errno, "cannot write the report to \"" + path + "\"");
  }
  fcntl(file.fd_, F_SETFL, fcntl(file.fd_, F_GETFL) & ~O_NONBLOCK);
  struct stat status {};
  if (fstat(file.fd_, &status) == 0 && S_ISREG(status.st_mode)) file.path_ = Resolved(path);
  return file;
}

ReportFile& ReportFile::operator=(ReportFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(path_, other.path_);
  return *this;
}

ReportFile::~ReportFile() {
  if (owned_ && fd_ >= 0) close(fd_);
}

absl::Status ReportFile::Write(const std::string& text) {
  int fault = 0;
  bool directly = path_.empty();
  if (!directly) {
    struct stat status {};
    fstat(fd_, &status);
    fault = Replace(path_, status.st_mode, text, &directly);
  }
  if (directly) fault = WriteAll(fd_, text) ? 0 : errno;
  if (fault == 0 || (fault == EPIPE && path_.empty())) return absl::OkStatus();
  return absl::ErrnoToStatus(
      fault, "cannot write the report" + (path_.empty() ? "" : " to \"" + path_ + "\""));
}

void ReportFile::Discard() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace ops_debug::analysis
