// The tensor maps that the program has encoded: a driver's 128 bytes are its own secret, and the
// CPU device, which runs captured launches once more, has another form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ops_debug::interposer {

inline constexpr size_t kTensorMapBytes = 128;
inline constexpr size_t kTensorMapAlignment = 64;

// Arguments of cuTensorMapEncodeTiled.
struct TensorMapRecord {
  std::array<std::byte, kTensorMapBytes> opaque{};
  std::string api;     // that made it
  bool tiled = false;  // else nothing but `address` is known
  uint32_t data_type = 0;
  uint32_t rank = 0;
  uint64_t address = 0;
  std::vector<uint64_t> global_dim;
  std::vector<uint64_t> global_strides;
  std::vector<uint32_t> box_dim;
  std::vector<uint32_t> element_strides;
  uint32_t interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;
};

// Adds those that lie in `bytes`, at multiples of `alignment` bytes counted from an address that is
// `address` at the first byte, unless `*maps` has them.
void FindTensorMaps(std::span<const char> bytes, uint64_t address, size_t alignment,
                    std::vector<TensorMapRecord>* maps);

}  // namespace ops_debug::interposer
