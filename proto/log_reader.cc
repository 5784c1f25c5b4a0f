// Reads the .odlog container (log.h). The file may come from anywhere: every length is checked
// before it is used.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <bit>
#include <cstring>

#include "proto/log.h"
#include "proto/log_layout.h"

namespace ops_debug::proto {
namespace {

std::string FrameName(uint32_t number) { return "frame " + std::to_string(number + 1); }

bool IsPrefix(const LogPrefix& prefix) {
  return prefix.magic == kLogPrefixMagic && prefix.content_bytes == 16 &&
         prefix.checksum == prefix.Checksum() && prefix.uncompressed_bytes <= kLogMaxFrameBytes &&
         prefix.compressed_bytes <= ZSTD_compressBound(kLogMaxFrameBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogReader>> LogReader::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot read log \"" + path + "\"");
  auto reader = std::unique_ptr<LogReader>(new LogReader(fd));
  if (struct stat status{}; fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError("\"" + path + "\" is a folder, not a log");
  }
  LogHeader header;
  LogHeader ours;
  std::memcpy(ours.name, kLogName, sizeof(kLogName));
  const size_t size = reader->ReadAt(0, &header, sizeof(header));
  if (size < sizeof(header) && std::memcmp(&header, &ours, size) == 0) {
    reader->offset_ = size;
    reader->cut_header_ = true;
    return reader;
  }
  const bool named = size == sizeof(header) && header.magic == kLogHeaderMagic &&
                     std::memcmp(header.name, kLogName, sizeof(kLogName)) == 0;
  if (!named) return absl::InvalidArgumentError("\"" + path + "\" is not an ops-debug log");
  if (header.version != kLogVersion) {
    return absl::InvalidArgumentError("\"" + path + "\" is a log of format version " +
                                      std::to_string(header.version) + "; this ops-debug reads " +
                                      std::to_string(kLogVersion));
  }
  reader->offset_ = sizeof(header);
  return reader;
}

LogReader::~LogReader() { close(fd_); }

bool LogReader::Next(std::vector<std::byte>* message) {
  while (true) {
    while (frame_offset_ == frame_size_) {
      if (!ReadFrame()) return false;
    }
    uint64_t length = 0;
    bool complete = false;
    for (uint32_t shift = 0; shift < 64 && frame_offset_ < frame_size_ && !complete; shift += 7) {
      const auto byte = static_cast<uint64_t>(frame_[frame_offset_++]);
      length |= (byte & 0x7f) << shift;
      complete = byte < 0x80;
    }
    if (complete && length <= frame_size_ - frame_offset_) {
      const std::byte* begin = frame_.get() + frame_offset_;
      message->assign(begin, begin + length);
      frame_offset_ += length;
      return true;
    }
    // The frame's checksum held, so a writer of another kind made this.
    Damage(FrameName(next_number_ - 1) +
           " of the log is malformed; its remaining events are missing");
    frame_offset_ = frame_size_;
  }
}

void LogReader::Damage(std::string text) {
  constexpr size_t kListed = 20;
  if (damage_.size() < kListed) {
    damage_.push_back(std::move(text));
    return;
  }
  ++more_damage_;
  damage_.resize(kListed);
  damage_.push_back("and " + std::to_string(more_damage_) + " more damaged places in the log");
}

// Leaves the next intact frame in `frame_`; false at the end of the file.
bool LogReader::ReadFrame() {
  frame_size_ = frame_offset_ = 0;
  if (cut_header_) {
    if (damage_.empty()) {
      Damage("the log is empty: the recording was cut off before it began");
    }
    return false;
  }
  while (true) {
    LogPrefix prefix{};
    const size_t size = ReadAt(offset_, &prefix, sizeof(prefix));
    if (size == sizeof(LogEnd) && prefix.magic == kLogEndMagic) {
      const auto end = std::bit_cast<LogEnd>(prefix);
      if (end.frames > next_number_) {
        Damage(std::to_string(end.frames - next_number_) +
               " frames at the end of the log are damaged; their events are missing");
      }
      return false;
    }
    if (size == 0) {
      Damage("the log has no end mark: the recording was cut off after " +
             std::to_string(next_number_) + (next_number_ == 1 ? " frame" : " frames"));
      return false;
    }
    if (size < sizeof(prefix)) {
      Damage("the log ends in the middle of " + FrameName(next_number_) +
             ": the recording was cut off");
      return false;
    }
    if (!IsPrefix(prefix)) {
      Damage(FrameName(next_number_) + " of the log is damaged; its events are missing");
      if (!FindNextPrefix(offset_ + 1)) return false;
      continue;
    }
    if (prefix.number > next_number_ &&
        (damage_.empty() || damage_.back().find("damaged") == std::string::npos)) {
      Damage(std::to_string(prefix.number - next_number_) + " frames of the log are missing");
    }
    std::vector<std::byte> compressed(prefix.compressed_bytes);
    const uint64_t begin = offset_ + sizeof(prefix);
    const size_t available = ReadAt(begin, compressed.data(), compressed.size());
    if (available < compressed.size()) {
      Damage("the log ends in the middle of " + FrameName(prefix.number) +
             ": the recording was cut off");
      return false;
    }
    if (frame_ == nullptr) frame_ = std::make_unique_for_overwrite<std::byte[]>(kLogMaxFrameBytes);
    const size_t result = ZSTD_decompress(frame_.get(), prefix.uncompressed_bytes,
                                          compressed.data(), compressed.size());
    next_number_ = prefix.number + 1;
    offset_ = begin + prefix.compressed_bytes;
    if (!ZSTD_isError(result) && result == prefix.uncompressed_bytes) {
      frame_size_ = result;
      return true;
    }
    Damage(FrameName(prefix.number) + " of the log is damaged (" +
           (ZSTD_isError(result) ? ZSTD_getErrorName(result) : "wrong length") +
           "); its events are missing");
  }
}

// Moves `offset_` to the next record at or behind `from`.
bool LogReader::FindNextPrefix(uint64_t from) {
  constexpr size_t kChunk = 1 << 16;
  std::vector<char> chunk(kChunk + sizeof(LogPrefix));
  for (uint64_t base = from;; base += kChunk) {
    const size_t size = ReadAt(base, chunk.data(), chunk.size());
    for (size_t i = 0; i < kChunk && i + sizeof(LogPrefix) <= size; ++i) {
      LogPrefix prefix{};
      std::memcpy(&prefix, chunk.data() + i, sizeof(prefix));
      const bool is_end =
          prefix.magic == kLogEndMagic && prefix.content_bytes == 16 && i + sizeof(LogEnd) == size;
      if (is_end || IsPrefix(prefix)) {
        offset_ = base + i;
        return true;
      }
    }
    if (size < chunk.size()) return false;
  }
}

size_t LogReader::ReadAt(uint64_t offset, void* data, size_t size_bytes) const {
  size_t done = 0;
  while (done < size_bytes) {
    const ssize_t size = pread(fd_, static_cast<char*>(data) + done, size_bytes - done,
                               static_cast<off_t>(offset + done));
    if (size > 0) {
      done += static_cast<size_t>(size);
    } else if (size == 0 || errno != EINTR) {
      break;
    }
  }
  return done;
}

}  // namespace ops_debug::proto
