// A zip archive is read from its end: the end record points to the directory, whose entries point
// to the members, each behind a local header. Where a 32-bit field is full, its value stands in a
// ZIP64 record.
#include "proto/zip_directory.h"

#include <sys/mman.h>
#include <zlib.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace ops_debug::proto {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50,
                   kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50,
                   kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                   kLocator64Bytes = 20;
constexpr uint64_t kMostComment = 0xffff;
constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncryptedFlag = 1;
// Deflate's best: 258 bytes from two bits. A larger promise is a lie.
constexpr uint64_t kMostInflation = 1032;

absl::Status Bad(const std::string& what, uint64_t at) {
  return absl::DataLossError(
      absl::StrCat(what, " at byte ", at, ": the archive is damaged or truncated"));
}

struct DirectoryPlace {
  uint64_t offset = 0, size = 0, entries = 0;
};

std::optional<uint64_t> FindEndRecord(const ByteRange& file) {
  if (file.size < kEndBytes) return std::nullopt;
  const uint64_t last = file.size - kEndBytes;
  const uint64_t first = last > kMostComment ? last - kMostComment : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (file.Number<uint32_t>(at) == kEndSignature &&
        file.Number<uint16_t>(at + 20) == file.size - at - kEndBytes) {
      return at;
    }
  }
  return std::nullopt;
}

absl::StatusOr<DirectoryPlace> FindDirectory(const ByteRange& file) {
  const std::optional<uint64_t> end = FindEndRecord(file);
  if (!end) {
    return absl::DataLossError(absl::StrCat("truncated: it ends at byte ", file.size,
                                            " without a zip archive's end record"));
  }
  DirectoryPlace place{file.Number<uint32_t>(*end + 16), file.Number<uint32_t>(*end + 12),
                       file.Number<uint16_t>(*end + 10)};
  if (*end >= kLocator64Bytes &&
      file.Number<uint32_t>(*end - kLocator64Bytes) == kLocator64Signature) {
    const auto at = file.Number<uint64_t>(*end - kLocator64Bytes + 8);
    if (!file.Holds(at, kEnd64Bytes) || file.Number<uint32_t>(at) != kEnd64Signature) {
      return Bad("no ZIP64 end record", at);
    }
    place = {file.Number<uint64_t>(at + 48), file.Number<uint64_t>(at + 40),
             file.Number<uint64_t>(at + 32)};
  }
  if (place.offset > *end || place.size > *end - place.offset) {
    return Bad("no directory", place.offset);
  }
  return place;
}

// Replaces fields that are full by those of the ZIP64 record among the extra fields, which holds
// only these, in this order.
bool TakeExtra64(ByteRange extra, uint64_t* size, uint64_t* stored_size, uint64_t* local_at) {
  constexpr uint32_t kFull = 0xffffffff;
  if (*size != kFull && *stored_size != kFull && *local_at != kFull) return true;
  while (extra.size >= 4) {
    const auto kind = extra.Number<uint16_t>(0);
    const auto bytes = extra.Number<uint16_t>(2);
    if (!extra.Holds(4, bytes)) return false;
    if (kind == kExtra64) {
      const ByteRange record = extra.Part(4, bytes);
      uint64_t at = 0;
      for (uint64_t* field : {size, stored_size, local_at}) {
        if (*field != kFull) continue;
        if (!record.Holds(at, 8)) return false;
        *field = record.Number<uint64_t>(at);
        at += 8;
      }
      return true;
    }
    extra = extra.Part(4 + bytes, extra.size - 4 - bytes);
  }
  return false;
}

// Reads the entry at `*at` and moves behind it.
absl::StatusOr<ZipMember> ReadEntry(const ByteRange& file, uint64_t directory_end, uint64_t* at) {
  const uint64_t entry = *at;
  if (directory_end - entry < kEntryBytes || file.Number<uint32_t>(entry) != kEntrySignature) {
    return Bad("no entry of the directory", entry);
  }
  const auto name_bytes = file.Number<uint16_t>(entry + 28);
  const auto extra_bytes = file.Number<uint16_t>(entry + 30);
  const auto comment_bytes = file.Number<uint16_t>(entry + 32);
  const uint64_t entry_bytes = kEntryBytes + name_bytes + extra_bytes + comment_bytes;
  if (directory_end - entry < entry_bytes) return Bad("an entry of the directory ends", entry);
  *at += entry_bytes;

  ZipMember member;
  member.name.assign(reinterpret_cast<const char*>(file.data) + entry + kEntryBytes, name_bytes);
  if (file.Number<uint16_t>(entry + 8) & kEncryptedFlag) {
    return absl::UnimplementedError(absl::StrCat("member \"", member.name, "\" is encrypted"));
  }
  const auto method = file.Number<uint16_t>(entry + 10);
  if (method != kStored && method != kDeflated) {
    return absl::UnimplementedError(
        absl::StrCat("member \"", member.name, "\" is compressed by method ", method,
                     "; numpy.savez and savez_compressed write 0 and 8"));
  }
  member.deflated = method == kDeflated;
  member.checksum = file.Number<uint32_t>(entry + 16);
  uint64_t stored_size = file.Number<uint32_t>(entry + 20);
  member.size = file.Number<uint32_t>(entry + 24);
  uint64_t local_at = file.Number<uint32_t>(entry + 42);
  if (!TakeExtra64(file.Part(entry + kEntryBytes + name_bytes, extra_bytes), &member.size,
                   &stored_size, &local_at)) {
    return Bad("no ZIP64 sizes of an entry", entry);
  }
  if (!file.Holds(local_at, kLocalBytes) || file.Number<uint32_t>(local_at) != kLocalSignature) {
    return Bad(absl::StrCat("no local header of member \"", member.name, "\""), local_at);
  }
  const uint64_t content_at = local_at + kLocalBytes + file.Number<uint16_t>(local_at + 26) +
                              file.Number<uint16_t>(local_at + 28);
  if (!file.Holds(content_at, stored_size) || (!member.deflated && stored_size != member.size) ||
      (member.deflated && member.size / kMostInflation > stored_size)) {
    return Bad(absl::StrCat("impossible size of member \"", member.name, "\""), content_at);
  }
  member.content = file.Part(content_at, stored_size);
  return member;
}

absl::Status CheckOverlaps(const std::vector<ZipMember>& members) {
  std::vector<const ZipMember*> sorted;
  for (const ZipMember& member : members) {
    if (member.content.size != 0) sorted.push_back(&member);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ZipMember* a, const ZipMember* b) {
    return a->content.data < b->content.data;
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const ByteRange& before = sorted[i - 1]->content;
    if (before.data + before.size > sorted[i]->content.data) {
      return absl::InvalidArgumentError(absl::StrCat("members \"", sorted[i - 1]->name, "\" and \"",
                                                     sorted[i]->name,
                                                     "\" share bytes of the file"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeZip(const ByteRange& file) {
  if (!file.Holds(0, 4)) return false;
  const auto signature = file.Number<uint32_t>(0);
  return signature == kLocalSignature || signature == kEndSignature;
}

absl::StatusOr<std::vector<ZipMember>> ReadZipDirectory(const ByteRange& file) {
  const absl::StatusOr<DirectoryPlace> place = FindDirectory(file);
  if (!place.ok()) return place.status();
  std::vector<ZipMember> members;
  uint64_t at = place->offset;
  const uint64_t end = place->offset + place->size;
  for (uint64_t i = 0; i < place->entries; ++i) {
    absl::StatusOr<ZipMember> member = ReadEntry(file, end, &at);
    if (!member.ok()) return member.status();
    if (!member->name.ends_with('/')) members.push_back(*std::move(member));
  }
  if (at != end) return Bad("an unexpected end of the directory", at);
  if (absl::Status status = CheckOverlaps(members); !status.ok()) return status;
  return members;
}

absl::StatusOr<ByteRange> ReadMember(const ZipMember& member) {
  if (!member.deflated) return member.content;
  const absl::Status damaged =
      absl::DataLossError("its compressed bytes are damaged (the checksum or length is wrong)");
  if (member.size == 0) return ByteRange{};
  // Pages that are never written cost nothing, so a wrong promise of a size does not either.
  void* memory = mmap(nullptr, member.size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for its ", member.size,
                                                     " bytes; save it with numpy.savez, which "
                                                     "does not compress"));
  }
  const uint64_t size = member.size;
  const std::shared_ptr<void> owner(memory, [size](void* p) { munmap(p, size); });

  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {  // no zlib header
    return absl::ResourceExhaustedError("no memory to inflate it");
  }
  constexpr uint64_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits
  const std::byte* in = member.content.data;
  uint64_t in_left = member.content.size, out_left = size;
  stream.next_out = static_cast<Bytef*>(memory);
  int state = Z_OK;
  while (state == Z_OK) {
    const auto in_now = static_cast<uInt>(std::min(in_left, kMostAtOnce));
    const auto out_now = static_cast<uInt>(std::min(out_left, kMostAtOnce));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in));
    stream.avail_in = in_now;
    stream.avail_out = out_now;
    state = inflate(&stream, Z_NO_FLUSH);
    in += in_now - stream.avail_in;
    in_left -= in_now - stream.avail_in;
    out_left -= out_now - stream.avail_out;
  }
  inflateEnd(&stream);
  if (state != Z_STREAM_END || out_left != 0) return damaged;
  uLong checksum = crc32_z(0, nullptr, 0);
  checksum = crc32_z(checksum, static_cast<const Bytef*>(memory), size);
  if (checksum != member.checksum) return damaged;
  return ByteRange{static_cast<const std::byte*>(memory), size, owner};
}

}  // namespace ops_debug::proto
