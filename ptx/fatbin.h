// Fat binaries: the container in which nvcc ships code for several architectures. Lists the entries
// and reads their payload, decompressed. Layout as observed in the output of CUDA 11.8 to 13.0
// toolkits (test/ptx/fatbin_test.cc verifies it against the nvcc that is installed).
//
//   wrapper    { u32 magic 0x466243B1; u32 version; const void* container;
//                const void* relocatable_containers }
//   container  { u32 magic 0xBA55ED50; u16 version; u16 header_bytes; u64 body_bytes }
//   body       entries back to back
//   entry      { u16 kind; u16 version; u32 header_bytes; u64 payload_bytes (padded);
//                u32 compressed_bytes; ...; u16 minor, major; u32 arch;
//                u32 name_offset, name_bytes; u64 flags; u64 0; u64 uncompressed_bytes }
//
// Every length is checked against what is readable before use: garbage gives a Diagnostic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/result.h"

namespace ops_debug::ptx {

inline constexpr uint32_t kFatbinWrapperMagic = 0x466243B1;
inline constexpr uint32_t kFatbinContainerMagic = 0xBA55ED50;

struct FatbinEntry {
  enum class Kind : uint16_t { kPtx = 1, kElf = 2, kLtoIr = 8 };  // other values exist
  enum class Compression : uint8_t { kNone, kLz4, kZstd };
  Kind kind = Kind::kPtx;
  Compression compression = Compression::kNone;
  uint32_t arch = 0;             // 90 for sm_90 or compute_90
  bool arch_specific = false;    // compute_90a
  bool family_specific = false;  // compute_100f
  bool debug = false;            // compiled with -G
  uint32_t major_version = 0;    // of PTX (9.0) or of the ELF format
  uint32_t minor_version = 0;
  uint64_t uncompressed_bytes = 0;
  std::span<const std::byte> payload;  // as stored; a view into the image
  std::string_view name;               // source file, often empty; a view into the image
};

// "PTX compute_90a", "ELF sm_90", "LTO-IR 90"; with " (zstd)" or " (LZ4)" if compressed.
std::string Describe(const FatbinEntry& entry);

struct Fatbin {
  std::vector<FatbinEntry> entries;
  // Wrapper of version 2: the program was built with -rdc=true; its objects are listed separately,
  // unlinked.
  bool relocatable = false;
  std::vector<const void*> objects;  // containers of those objects; see OpenFatbin
  uint64_t bytes = 0;                // of the containers read
};

// Number of bytes that can be read from `address` on in this process, from /proc/self/maps;
// SIZE_MAX if that file cannot be read, 0 if nothing is mapped there.
size_t ReadableBytes(const void* address);

// True if `image` starts with these bytes. Stops at the first that differs: an image may be a text
// that is shorter.
bool StartsWithBytes(const void* image, const void* bytes, size_t count);

// True if `image` starts with one of the two magics.
bool LooksLikeFatbin(const void* image);

// Lists what a pointer given to the driver leads to: a wrapper or one container, in this process's
// memory.
Result<Fatbin> OpenFatbin(const void* image);

// Lists a file's bytes: one container or several back to back.
Result<Fatbin> ReadFatbinFile(std::span<const std::byte> bytes);

// The entry's payload, decompressed, without the padding behind it; of PTX, without trailing NUL
// bytes. liblz4 and libzstd are loaded on first use, as private copies from `lib` beside the
// library that holds this code, else by soname.
Result<std::string> ReadPayload(const FatbinEntry& entry);

}  // namespace ops_debug::ptx
