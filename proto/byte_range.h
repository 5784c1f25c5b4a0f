// Bytes of an untrusted file with whatever keeps them alive, and the arithmetic that no size from
// such a file escapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::proto {

struct ByteRange {
  const std::byte* data = nullptr;
  uint64_t size = 0;
  std::shared_ptr<const void> owner;

  // Whether `count` bytes lie at `offset`.
  bool Holds(uint64_t offset, uint64_t count) const {
    return offset <= size && count <= size - offset;
  }
  // A little-endian number. Only where Holds().
  template <typename T>
  T Number(uint64_t offset) const {
    T value;
    std::memcpy(&value, data + offset, sizeof value);
    return value;
  }
  ByteRange Part(uint64_t offset, uint64_t count) const { return {data + offset, count, owner}; }
};

// Maps a regular file for reading; an empty one gives an empty range. A file that is cut while it
// is mapped ends the process, as with every mapping.
absl::StatusOr<ByteRange> MapFile(const std::string& path);

// Bytes of a dense tensor. False: a negative size, or too many bytes to count. Sizes that no
// int64_t holds are refused beside a 0, too, so that products of a part of the shape are safe.
bool DenseBytes(const std::vector<int64_t>& shape, uint32_t element_bytes, uint64_t* bytes);

// More than NumPy's most (64).
constexpr size_t kMostDimensions = 64;

}  // namespace ops_debug::proto
