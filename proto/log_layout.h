// Records of the .odlog container around its zstd frames; little endian, as every machine that CUDA
// runs on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ops_debug::proto {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kLogVersion = 1;
// Magic numbers of skippable frames are 0x184D2A50 to 0x184D2A5F; each record type takes one.
inline constexpr uint32_t kLogHeaderMagic = 0x184D2A50;
inline constexpr uint32_t kLogPrefixMagic = 0x184D2A51;
inline constexpr uint32_t kLogEndMagic = 0x184D2A52;
inline constexpr char kLogName[8] = {'O', 'D', 'L', 'O', 'G', 0, 0, 0};

inline constexpr size_t kLogFrameBytes = 256 * 1024;     // a frame is closed when it holds as much
inline constexpr size_t kLogMaxMessageBytes = 16 << 20;  // longer ones are refused
inline constexpr size_t kLogMaxFrameBytes = kLogFrameBytes + kLogMaxMessageBytes + 16;

struct LogHeader {
  uint32_t magic = kLogHeaderMagic;
  uint32_t content_bytes = 16;
  char name[8] = {};
  uint32_t version = kLogVersion;
  uint32_t reserved = 0;
};

struct LogPrefix {
  uint32_t magic = kLogPrefixMagic;
  uint32_t content_bytes = 16;
  uint32_t number = 0;  // of the frame, from 0
  uint32_t compressed_bytes = 0;
  uint32_t uncompressed_bytes = 0;
  uint32_t checksum = 0;

  constexpr uint32_t Checksum() const {
    return (number * 0x9e3779b1u ^ compressed_bytes) * 0x85ebca77u ^
           uncompressed_bytes * 0xc2b2ae3du ^ magic;
  }
};

struct LogEnd {
  uint32_t magic = kLogEndMagic;
  uint32_t content_bytes = 16;
  uint32_t frames = 0;
  uint32_t reserved = 0;
  uint64_t messages = 0;
};

static_assert(sizeof(LogHeader) == 24 && sizeof(LogPrefix) == 24 && sizeof(LogEnd) == 24);

}  // namespace ops_debug::proto
