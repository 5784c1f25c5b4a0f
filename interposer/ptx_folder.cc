// System calls and nothing above them: this also runs while an assembler process exits.
#include "interposer/ptx_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "interposer/files.h"

namespace ops_debug::interposer {
namespace {

constexpr char kSuffix[] = ".ptx";
constexpr char kPartialPrefix[] = ".partial-";
constexpr size_t kNameBytes = 16 + 1 + 32 + sizeof(kSuffix) - 1;
constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int64_t kTouchAfter_ns = 600 * kSecond_ns;  // a use refreshes the mtime at most so often
constexpr int64_t kPartialLives_ns = 3600 * kSecond_ns;

// What stands in front of an entry's text. One machine's cache: its byte order will do.
struct EntryHeader {
  char magic[8];
  uint64_t checksum;  // of everything behind this field
  uint64_t text_bytes;
  uint32_t origin_bytes;
  uint32_t fuse_multiply_add;
  int32_t max_registers;
  int32_t optimization;
};
static_assert(sizeof(EntryHeader) == 40);
constexpr char kMagic[sizeof(EntryHeader::magic) + 1] = "ODPTX-1\n";
constexpr size_t kChecksummedFrom = offsetof(EntryHeader, text_bytes);

int64_t Now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond_ns + now.tv_nsec;
}

// The size in an entry's name; false if the file is none of ours.
bool ParseName(std::string_view name, uint64_t* cubin_bytes) {
  if (name.size() != kNameBytes || !name.ends_with(kSuffix)) return false;
  const auto parsed = std::from_chars(name.data(), name.data() + 16, *cubin_bytes, 16);
  return parsed.ec == std::errc() && parsed.ptr == name.data() + 16;
}

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

std::string EncodeStoredPtx(const StoredPtx& ptx) {
  EntryHeader header{};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.text_bytes = ptx.text.size();
  header.origin_bytes = static_cast<uint32_t>(ptx.origin.size());
  header.fuse_multiply_add = ptx.options.fuse_multiply_add ? 1 : 0;
  header.max_registers = ptx.options.max_registers;
  header.optimization = ptx.options.optimization;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += ptx.origin;
  bytes += ptx.text;
  const uint64_t checksum = Checksum(Bytes(std::string_view(bytes).substr(kChecksummedFrom)));
  std::memcpy(bytes.data() + offsetof(EntryHeader, checksum), &checksum, sizeof checksum);
  return bytes;
}

std::optional<StoredPtx> DecodeStoredPtx(const std::string& bytes) {
  EntryHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view rest = std::string_view(bytes).substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 ||
      header.origin_bytes > rest.size() || header.text_bytes != rest.size() - header.origin_bytes ||
      header.checksum != Checksum(Bytes(std::string_view(bytes).substr(kChecksummedFrom))))
    return std::nullopt;
  StoredPtx ptx;
  ptx.origin = rest.substr(0, header.origin_bytes);
  ptx.text = rest.substr(header.origin_bytes);
  ptx.options = {header.fuse_multiply_add != 0, header.max_registers, header.optimization};
  return ptx;
}

PtxFolder::PtxFolder(std::string path, uint64_t limit_bytes, uint64_t limit_files)
    : path_(std::move(path)), limit_bytes_(limit_bytes), limit_files_(limit_files) {}

void PtxFolder::SetObstacle(const std::string& what, int error) {
  if (obstacle_.empty()) obstacle_ = what + ": " + std::strerror(error);
}

void PtxFolder::Prepare() {
  if (path_.empty()) return;
  std::lock_guard lock(mutex_);
  for (size_t slash = path_.find('/', 1); slash != std::string::npos;
       slash = path_.find('/', slash + 1)) {
    mkdir(path_.substr(0, slash).c_str(), 0700);
  }
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    SetObstacle("cannot create " + path_, errno);
  } else if (access(path_.c_str(), R_OK | W_OK | X_OK) != 0) {
    SetObstacle("cannot write to " + path_, errno);
  }
}

std::string PtxFolder::obstacle() {
  std::lock_guard lock(mutex_);
  return obstacle_;
}

std::string PtxFolder::PathOf(const CubinIdentity& cubin) const {
  return path_ + "/" + cubin.ToString() + kSuffix;
}

bool PtxFolder::MayHold(uint64_t cubin_bytes) {
  if (path_.empty()) return false;
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return false;
  const int64_t mtime_ns = ModifiedAt_ns(status);
  std::lock_guard lock(mutex_);
  if (mtime_ns != listed_mtime_ns_ || listed_while_young_) {
    listed_mtime_ns_ = mtime_ns;
    listed_while_young_ = Now_ns() - mtime_ns < kSecond_ns;
    sizes_.clear();
    ForEachFile(path_, [&](const char* name) {
      uint64_t size_bytes = 0;
      if (ParseName(name, &size_bytes)) sizes_.insert(size_bytes);
    });
  }
  return sizes_.contains(cubin_bytes);
}

std::optional<StoredPtx> PtxFolder::Find(const CubinIdentity& cubin) {
  if (path_.empty()) return std::nullopt;
  const std::string path = PathOf(cubin);
  std::string bytes;
  if (!ReadWholeFile(path, &bytes)) return std::nullopt;
  std::optional<StoredPtx> ptx = DecodeStoredPtx(bytes);
  if (!ptx) {
    unlink(path.c_str());  // the next process that sees the pair writes it anew
    return std::nullopt;
  }
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && Now_ns() - ModifiedAt_ns(status) > kTouchAfter_ns)
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return ptx;
}

void PtxFolder::Add(const CubinIdentity& cubin, const StoredPtx& ptx) {
  if (path_.empty()) return;
  const std::string path = PathOf(cubin);
  const std::string bytes = EncodeStoredPtx(ptx);
  std::string present;
  if (ReadWholeFile(path, &present) && present == bytes) return;

  static std::atomic<uint32_t> count{0};
  const std::string partial = path_ + "/" + kPartialPrefix + std::to_string(getpid()) + "-" +
                              std::to_string(count.fetch_add(1));
  int error = 0;
  if (!WriteWholeFile(partial, bytes, &error)) {
    unlink(partial.c_str());
    std::lock_guard lock(mutex_);
    SetObstacle("cannot write to " + path_, error);
    return;
  }
  if (rename(partial.c_str(), path.c_str()) != 0) {
    const int rename_error = errno;
    unlink(partial.c_str());
    std::lock_guard lock(mutex_);
    SetObstacle("cannot write to " + path_, rename_error);
    return;
  }
  std::lock_guard lock(mutex_);
  // The first write of a process looks at the whole folder: an assembler process writes once.
  const bool unknown = untrimmed_bytes_ == UINT64_MAX;
  untrimmed_bytes_ = unknown ? 0 : untrimmed_bytes_ + bytes.size();
  if (unknown || untrimmed_bytes_ > limit_bytes_ / 16) {
    untrimmed_bytes_ = 0;
    Trim();
  }
}

void PtxFolder::Trim() {
  struct Entry {
    std::string name;
    int64_t mtime_ns;
    uint64_t size_bytes;
  };
  std::vector<Entry> entries;
  uint64_t total_bytes = 0;
  const int64_t now_ns = Now_ns();
  ForEachFile(path_, [&](const char* name) {
    struct stat status {};
    const std::string path = path_ + "/" + name;
    uint64_t cubin_bytes = 0;
    const bool partial = std::string_view(name).starts_with(kPartialPrefix);
    if (!partial && !ParseName(name, &cubin_bytes)) return;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    if (partial) {  // of a process that was killed
      if (now_ns - ModifiedAt_ns(status) > kPartialLives_ns) unlink(path.c_str());
      return;
    }
    const auto size_bytes = static_cast<uint64_t>(status.st_blocks) * 512;
    entries.push_back({path, ModifiedAt_ns(status), size_bytes});
    total_bytes += size_bytes;
  });
  if (total_bytes <= limit_bytes_ && entries.size() <= limit_files_) return;
  std::ranges::sort(entries, {}, &Entry::mtime_ns);
  // Some room, so that not every write comes here.
  const uint64_t keep_bytes = limit_bytes_ - limit_bytes_ / 8;
  const uint64_t keep_files = limit_files_ - limit_files_ / 8;
  size_t left = entries.size();
  for (const Entry& entry : entries) {
    if (total_bytes <= keep_bytes && left <= keep_files) break;
    if (unlink(entry.name.c_str()) != 0 && errno != ENOENT) break;
    total_bytes -= entry.size_bytes;
    --left;
  }
}

}  // namespace ops_debug::interposer
