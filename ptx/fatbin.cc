// Walks the containers of a fat binary within checked bounds; LZ4 and zstd payloads are
// decompressed by the host's own libraries, opened privately.
#include "ptx/fatbin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ops_debug::ptx {
namespace {

constexpr uint64_t kFlagDebug = 0x2;
constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr uint64_t kFlagArchSpecific = 0x100000;
constexpr uint64_t kFlagFamilySpecific = 0x200000;

// A module larger than this is taken for a broken header, not for code.
constexpr uint64_t kMaxUncompressedBytes = 1ull << 31;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* container;
  const void* relocatable_containers;
};
static_assert(sizeof(Wrapper) == 24);

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};
static_assert(sizeof(ContainerHeader) == 16);

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t minor_version;
  uint16_t major_version;
  uint32_t arch;
  uint32_t name_offset;
  uint32_t name_bytes;
  uint64_t flags;
  uint64_t reserved;
  uint64_t uncompressed_bytes;
};
static_assert(sizeof(EntryHeader) == 64);

Diagnostic Broken(std::string what) {
  return Diagnostic{.code = Diagnostic::Code::kInvalid,
                    .message = "fat binary: " + std::move(what),
                    .hint = "the image is damaged or of a format this version does not know"};
}

template <class T>
bool ReadAt(std::span<const std::byte> bytes, uint64_t offset, T* out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(out, bytes.data() + offset, sizeof(T));
  return true;
}

Result<FatbinEntry> ReadEntry(std::span<const std::byte> body, uint64_t offset, uint64_t* next) {
  const std::string where = "entry at offset " + std::to_string(offset);
  EntryHeader header;
  if (!ReadAt(body, offset, &header)) return Broken(where + " is cut off");
  if (header.header_bytes < sizeof(EntryHeader) || header.header_bytes > body.size() - offset) {
    return Broken(where + " has a header of " + std::to_string(header.header_bytes) + " bytes");
  }
  const uint64_t room = body.size() - offset - header.header_bytes;
  if (header.payload_bytes > room) {
    return Broken(where + " claims " + std::to_string(header.payload_bytes) + " bytes, " +
                  std::to_string(room) + " are left");
  }
  FatbinEntry entry;
  entry.kind = static_cast<FatbinEntry::Kind>(header.kind);
  entry.arch = header.arch;
  entry.arch_specific = (header.flags & kFlagArchSpecific) != 0;
  entry.family_specific = (header.flags & kFlagFamilySpecific) != 0;
  entry.debug = (header.flags & kFlagDebug) != 0;
  entry.major_version = header.major_version;
  entry.minor_version = header.minor_version;
  uint64_t stored_bytes = header.payload_bytes;
  if ((header.flags & (kFlagLz4 | kFlagZstd)) != 0) {
    entry.compression = (header.flags & kFlagZstd) != 0 ? FatbinEntry::Compression::kZstd
                                                        : FatbinEntry::Compression::kLz4;
    if (header.compressed_bytes > header.payload_bytes) {
      return Broken(where + " claims " + std::to_string(header.compressed_bytes) +
                    " compressed bytes in a payload of " + std::to_string(header.payload_bytes));
    }
    if (header.compressed_bytes != 0) stored_bytes = header.compressed_bytes;
    entry.uncompressed_bytes = header.uncompressed_bytes;
  } else {
    entry.uncompressed_bytes = header.payload_bytes;
  }
  entry.payload = body.subspan(offset + header.header_bytes, stored_bytes);
  if (header.name_bytes != 0) {
    if (header.name_offset > header.header_bytes ||
        header.name_bytes > header.header_bytes - header.name_offset) {
      return Broken(where + " has a name outside its header");
    }
    const auto* text = reinterpret_cast<const char*>(body.data() + offset + header.name_offset);
    entry.name = std::string_view(text, strnlen(text, header.name_bytes));
  }
  *next = offset + header.header_bytes + header.payload_bytes;
  return entry;
}

// Appends the entries of the container that `bytes` starts with; sets `*bytes_read` to its whole
// size.
Result<bool> ReadContainer(std::span<const std::byte> bytes, Fatbin* fatbin, uint64_t* bytes_read) {
  ContainerHeader header;
  if (!ReadAt(bytes, 0, &header)) return Broken("container header is cut off");
  if (header.magic != kFatbinContainerMagic) return Broken("container has a wrong magic number");
  if (header.header_bytes < sizeof(ContainerHeader) || header.header_bytes > bytes.size() ||
      header.body_bytes > bytes.size() - header.header_bytes) {
    return Broken("container claims " + std::to_string(header.body_bytes) + " bytes, " +
                  std::to_string(bytes.size()) + " are readable");
  }
  const auto body = bytes.subspan(header.header_bytes, header.body_bytes);
  for (uint64_t offset = 0; offset < body.size();) {
    uint64_t next = 0;
    Result<FatbinEntry> entry = ReadEntry(body, offset, &next);
    if (!entry.ok()) return entry.error();
    fatbin->entries.push_back(*entry);
    offset = next;
  }
  *bytes_read = header.header_bytes + header.body_bytes;
  return true;
}

// A decompression library of the host, private to us: the target may carry another version under
// the same name.
class PrivateLibrary {
 public:
  explicit PrivateLibrary(const char* soname) {
    Dl_info self;
    if (dladdr(reinterpret_cast<const void*>(&ReadableBytes), &self) != 0 && self.dli_fname) {
      const std::string path = self.dli_fname;
      const size_t slash = path.rfind('/');
      const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash);
      for (const char* beside : {"/", "/lib/", "/../lib/"}) {
        const std::string candidate = directory + beside + soname;
        if (access(candidate.c_str(), R_OK) != 0) continue;
        handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_) return;
      }
    }
    handle_ = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  }
  void* Symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

 private:
  void* handle_ = nullptr;
};

Diagnostic MissingLibrary(const char* soname) {
  return Diagnostic{
      .code = Diagnostic::Code::kUnsupported,
      .message = std::string("fat binary: cannot load ") + soname + " to decompress an entry",
      .hint = std::string("install it, or put ") + soname + " into lib/ of the ops-debug build"};
}

bool DecompressLz4(std::span<const std::byte> in, std::string* out, Diagnostic* error) {
  using Decompress = int (*)(const char*, char*, int, int);
  static const auto decompress =
      reinterpret_cast<Decompress>(PrivateLibrary("liblz4.so.1").Symbol("LZ4_decompress_safe"));
  if (!decompress) {
    *error = MissingLibrary("liblz4.so.1");
    return false;
  }
  const int got = decompress(reinterpret_cast<const char*>(in.data()), out->data(),
                             static_cast<int>(in.size()), static_cast<int>(out->size()));
  if (got < 0) {
    *error = Broken("LZ4 data is damaged");
    return false;
  }
  out->resize(static_cast<size_t>(got));
  return true;
}

bool DecompressZstd(std::span<const std::byte> in, std::string* out, Diagnostic* error) {
  using Decompress = size_t (*)(void*, size_t, const void*, size_t);
  using IsError = unsigned (*)(size_t);
  struct Functions {
    Decompress decompress;
    IsError is_error;
  };
  static const Functions zstd = [] {
    const PrivateLibrary library("libzstd.so.1");
    return Functions{reinterpret_cast<Decompress>(library.Symbol("ZSTD_decompress")),
                     reinterpret_cast<IsError>(library.Symbol("ZSTD_isError"))};
  }();
  if (!zstd.decompress || !zstd.is_error) {
    *error = MissingLibrary("libzstd.so.1");
    return false;
  }
  const size_t got = zstd.decompress(out->data(), out->size(), in.data(), in.size());
  if (zstd.is_error(got) != 0) {
    *error = Broken("zstd data is damaged");
    return false;
  }
  out->resize(got);
  return true;
}

}  // namespace

std::string Describe(const FatbinEntry& entry) {
  std::string text;
  switch (entry.kind) {
    case FatbinEntry::Kind::kPtx:
      text = "PTX compute_";
      break;
    case FatbinEntry::Kind::kElf:
      text = "ELF sm_";
      break;
    case FatbinEntry::Kind::kLtoIr:
      text = "LTO-IR ";
      break;
    default:
      text = "entry of kind " + std::to_string(static_cast<uint32_t>(entry.kind)) + " for ";
  }
  text += std::to_string(entry.arch);
  if (entry.arch_specific) text += 'a';
  if (entry.family_specific) text += 'f';
  if (entry.compression == FatbinEntry::Compression::kLz4) text += " (LZ4)";
  if (entry.compression == FatbinEntry::Compression::kZstd) text += " (zstd)";
  return text;
}

size_t ReadableBytes(const void* address) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return SIZE_MAX;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  uintptr_t end_of_run = 0;  // end of the readable mappings, without a gap, that hold `address`
  char line[512];
  bool line_start = true;
  while (std::fgets(line, sizeof line, maps)) {
    const bool whole = std::strchr(line, '\n') != nullptr;
    const bool parse = line_start;
    line_start = whole;
    unsigned long low = 0, high = 0;
    char permission = '-';
    if (!parse || std::sscanf(line, "%lx-%lx %c", &low, &high, &permission) != 3) continue;
    if (permission != 'r') continue;
    if (end_of_run == 0) {
      if (wanted >= low && wanted < high) end_of_run = high;
    } else if (low == end_of_run) {
      end_of_run = high;
    } else {
      break;
    }
  }
  std::fclose(maps);
  return end_of_run == 0 ? 0 : end_of_run - wanted;
}

bool StartsWithBytes(const void* image, const void* bytes, size_t count) {
  const auto* a = static_cast<const unsigned char*>(image);
  const auto* b = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; i++) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

bool LooksLikeFatbin(const void* image) {
  if (!image || ReadableBytes(image) < sizeof(uint32_t)) return false;
  return StartsWithBytes(image, &kFatbinWrapperMagic, sizeof kFatbinWrapperMagic) ||
         StartsWithBytes(image, &kFatbinContainerMagic, sizeof kFatbinContainerMagic);
}

// Pointers up to a null one (link.stub of the toolkit: __cudaPrelinkFatbins).
static std::vector<const void*> ReadObjectList(const void* list) {
  constexpr size_t kMaxObjects = 65536;
  std::vector<const void*> objects;
  const size_t readable = list ? ReadableBytes(list) : 0;
  const size_t room = std::min(readable / sizeof(void*), kMaxObjects);
  for (size_t i = 0; i < room; ++i) {
    const void* object = nullptr;
    std::memcpy(&object, static_cast<const std::byte*>(list) + i * sizeof object, sizeof object);
    if (object == nullptr) break;
    objects.push_back(object);
  }
  return objects;
}

Result<Fatbin> OpenFatbin(const void* image) {
  Fatbin fatbin;
  const void* container = image;
  size_t readable = image ? ReadableBytes(image) : 0;
  uint32_t magic = 0;
  if (readable < sizeof magic) return Broken("the image pointer leads to no readable memory");
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kFatbinWrapperMagic) {
    Wrapper wrapper{};
    // Images made by bin2c-like tools have wrappers of 16 bytes: the last member is optional.
    if (readable < offsetof(Wrapper, relocatable_containers)) return Broken("wrapper is cut off");
    std::memcpy(&wrapper, image, readable < sizeof wrapper ? readable : sizeof wrapper);
    container = wrapper.container;
    fatbin.relocatable = wrapper.version == 2;
    if (fatbin.relocatable) fatbin.objects = ReadObjectList(wrapper.relocatable_containers);
    readable = container ? ReadableBytes(container) : 0;
    if (readable == 0) return Broken("the wrapper's pointer leads to no readable memory");
  }
  // Behind a container in memory may lie another program's: only the one pointed at belongs to this
  // image. SIZE_MAX would overflow the span's end; no container is half as large as the address
  // space.
  const size_t limit = readable < (SIZE_MAX >> 1) ? readable : SIZE_MAX >> 1;
  Result<bool> read =
      ReadContainer({static_cast<const std::byte*>(container), limit}, &fatbin, &fatbin.bytes);
  if (!read.ok()) return read.error();
  return fatbin;
}

Result<Fatbin> ReadFatbinFile(std::span<const std::byte> bytes) {
  Fatbin fatbin;
  do {
    uint64_t size = 0;
    Result<bool> read = ReadContainer(bytes.subspan(fatbin.bytes), &fatbin, &size);
    if (!read.ok()) return read.error();
    fatbin.bytes += size;
  } while (fatbin.bytes < bytes.size());
  return fatbin;
}

Result<std::string> ReadPayload(const FatbinEntry& entry) {
  std::string payload;
  if (entry.compression == FatbinEntry::Compression::kNone) {
    payload.assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  } else {
    if (entry.uncompressed_bytes > kMaxUncompressedBytes ||
        entry.payload.size() > kMaxUncompressedBytes - 1) {
      return Broken("entry claims " + std::to_string(entry.uncompressed_bytes) +
                    " bytes uncompressed");
    }
    // Neither format expands more than about 255 times per stage on code; a lying header must not
    // make us allocate.
    if (entry.uncompressed_bytes > (entry.payload.size() + 64) * uint64_t{4096}) {
      return Broken("entry claims " + std::to_string(entry.uncompressed_bytes) + " bytes from " +
                    std::to_string(entry.payload.size()));
    }
    payload.resize(entry.uncompressed_bytes);
    Diagnostic error;
    const bool done = entry.compression == FatbinEntry::Compression::kLz4
                          ? DecompressLz4(entry.payload, &payload, &error)
                          : DecompressZstd(entry.payload, &payload, &error);
    if (!done) return error;
  }
  if (entry.kind == FatbinEntry::Kind::kPtx) {
    while (!payload.empty() && payload.back() == '\0') payload.pop_back();
  }
  return payload;
}

}  // namespace ops_debug::ptx
