// Whole files, read and written with retries after signals.
#include "interposer/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ops_debug::interposer {

bool ReadWholeFile(const std::string& path, std::string* bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return false;
  struct stat status {};
  bool good = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  try {
    // One byte more than the size: reading 0 bytes at the end shows that the file has not grown.
    bytes->resize(good ? static_cast<size_t>(status.st_size) + 1 : 0);
  } catch (...) {
    close(file);
    throw;
  }
  size_t have = 0;
  while (good && have < bytes->size()) {
    const ssize_t got = read(file, bytes->data() + have, bytes->size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) good = false;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  close(file);
  bytes->resize(have);
  return good;
}

bool WriteWholeFile(const std::string& path, const std::string& bytes, int* error) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    *error = errno;
    return false;
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      *error = errno;
      close(file);
      return false;
    }
    done += static_cast<size_t>(wrote);
  }
  if (close(file) == 0) return true;
  *error = errno;
  return false;
}

}  // namespace ops_debug::interposer
