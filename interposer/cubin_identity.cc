// ELF-64 headers (System V gABI, chapters 4 and 5), read with every length checked. XXH3 is
// header-only here: the target may hold another libxxhash.
#include "interposer/cubin_identity.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ops_debug::interposer {
namespace {

// The end of a part, or 0 if it does not fit into `limit` bytes.
uint64_t EndOf(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset ? offset + size : 0;
}

template <class Header>
bool ReadHeader(std::span<const std::byte> image, uint64_t offset, Header* header) {
  if (EndOf(offset, sizeof *header, image.size()) == 0) return false;
  std::memcpy(header, image.data() + offset, sizeof *header);
  return true;
}

}  // namespace

uint64_t ElfBytes(std::span<const std::byte> image) {
  Elf64_Ehdr header;
  if (!ReadHeader(image, 0, &header)) return 0;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB)
    return 0;
  if (header.e_shentsize < sizeof(Elf64_Shdr) || header.e_shoff == 0) return 0;

  uint64_t count = header.e_shnum;
  if (count == 0) {  // more than fit into the field: the first section's size says how many
    Elf64_Shdr first;
    if (!ReadHeader(image, header.e_shoff, &first)) return 0;
    count = first.sh_size;
  }
  if (count == 0 || count > image.size() / header.e_shentsize) return 0;
  uint64_t end = EndOf(header.e_shoff, count * header.e_shentsize, image.size());
  if (end == 0) return 0;
  const uint64_t segments =
      EndOf(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize, image.size());
  if (header.e_phnum != 0 && segments == 0) return 0;
  end = std::max({end, segments, uint64_t{sizeof header}});
  for (uint64_t i = 0; i < count; ++i) {
    Elf64_Shdr section;
    if (!ReadHeader(image, header.e_shoff + i * header.e_shentsize, &section)) return 0;
    if (section.sh_type == SHT_NOBITS || section.sh_size == 0) continue;
    const uint64_t section_end = EndOf(section.sh_offset, section.sh_size, image.size());
    if (section_end == 0) return 0;
    end = std::max(end, section_end);
  }
  return end;
}

std::optional<CubinIdentity> IdentifyCubin(std::span<const std::byte> image) {
  const uint64_t size_bytes = ElfBytes(image);
  if (size_bytes == 0) return std::nullopt;
  const XXH128_hash_t hash = XXH3_128bits(image.data(), size_bytes);
  return CubinIdentity{size_bytes, {hash.high64, hash.low64}};
}

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string CubinIdentity::ToString() const {
  char text[64];
  std::snprintf(text, sizeof text, "%016llx-%016llx%016llx",
                static_cast<unsigned long long>(size_bytes),
                static_cast<unsigned long long>(hash[0]), static_cast<unsigned long long>(hash[1]));
  return text;
}

}  // namespace ops_debug::interposer
