// The members of a zip archive, as far as .npz needs them: stored or deflated, ZIP64 included
// (PKWARE's APPNOTE 6.3).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/byte_range.h"

namespace ops_debug::proto {

struct ZipMember {
  std::string name;
  ByteRange content;  // as it lies in the file
  bool deflated = false;
  uint64_t size = 0;      // inflated
  uint32_t checksum = 0;  // CRC-32 of the inflated bytes
};

bool LooksLikeZip(const ByteRange& file);

// In the order of the archive's directory; members lie in the file and do not overlap. Folders are
// left out.
absl::StatusOr<std::vector<ZipMember>> ReadZipDirectory(const ByteRange& file);

// The member's bytes: a stored one's where they are, without a look at the checksum, which would
// read them all; a deflated one's inflated into memory of their own.
absl::StatusOr<ByteRange> ReadMember(const ZipMember& member);

}  // namespace ops_debug::proto
