// Which cubin is this? The size that its ELF headers claim and a hash of so many bytes. Whoever
// hands a cubin to the driver passes no size, so the size must come from the image itself; bytes
// behind it (a file's or a container's padding) do not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ops_debug::interposer {

struct CubinIdentity {
  uint64_t size_bytes = 0;
  uint64_t hash[2] = {};  // XXH3, 128 bits

  bool operator==(const CubinIdentity&) const = default;
  // "0000000000000df8-6c1f…": the size first, so that a folder's listing tells which sizes exist.
  std::string ToString() const;
};

// Bytes that the ELF file at the start of `image` occupies: up to the end of its last section,
// segment or table. 0 if it is none, or claims more than there is.
uint64_t ElfBytes(std::span<const std::byte> image);

// Nothing if `image` is no whole ELF file.
std::optional<CubinIdentity> IdentifyCubin(std::span<const std::byte> image);

// XXH3 of any bytes, 64 bits: the stored entries' checksum.
uint64_t Checksum(std::span<const std::byte> bytes);

}  // namespace ops_debug::interposer
