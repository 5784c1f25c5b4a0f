#include "proto/byte_range.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ops_debug::proto {

absl::StatusOr<ByteRange> MapFile(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer must not hold us.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot be read");
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError("is not a regular file");
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    close(fd);
    return ByteRange{};
  }
  void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int mapping_error = errno;
  close(fd);
  if (bytes == MAP_FAILED) return absl::ErrnoToStatus(mapping_error, "cannot be mapped");
  return ByteRange{static_cast<const std::byte*>(bytes), size,
                   std::shared_ptr<const void>(
                       bytes, [size](const void* p) { munmap(const_cast<void*>(p), size); })};
}

bool DenseBytes(const std::vector<int64_t>& shape, uint32_t element_bytes, uint64_t* bytes) {
  bool has_zero = false;
  int64_t product = element_bytes;
  for (const int64_t size : shape) {
    if (size < 0) return false;
    if (size == 0) {
      has_zero = true;
    } else if (__builtin_mul_overflow(product, size, &product)) {
      return false;
    }
  }
  *bytes = has_zero ? 0 : static_cast<uint64_t>(product);
  return true;
}

}  // namespace ops_debug::proto
