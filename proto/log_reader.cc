// Reads the .odlog container (log.h). The file may come from anywhere: every length is checked
// before it is used.
#include <errno.h>
#include <fcntl.h>
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
  LogHeader header;
  const size_t size = reader->ReadAt(0, &header, sizeof(header));
  const bool named = size == sizeof(header) && header.magic == kLogHeaderMagic &&
                     std::memcmp(header.name, kLogName, sizeof(kLogName)) == 0;
  if (!named) {
    return absl::InvalidArgumentError("\"" + path + "\" is not an ops-debug log" +
                                      (size == 0 ? " (it is empty)" : ""));
  }
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
  while (frame_offset_ == frame_.size()) {
    if (!ReadFrame()) return false;
  }
  // The frame's checksum held, so only a writer of another kind can make this fail.
  uint64_t length = 0;
  bool complete = false;
  for (uint32_t shift = 0; shift < 64 && frame_offset_ < frame_.size() && !complete; shift += 7) {
    const auto byte = static_cast<uint64_t>(frame_[frame_offset_++]);
    length |= (byte & 0x7f) << shift;
    complete = byte < 0x80;
  }
  if (!complete || length > frame_.size() - frame_offset_) {
    damage_.push_back(FrameName(next_number_ - 1) +
                      " of the log is malformed; its remaining events are missing");
    frame_offset_ = frame_.size();
    return Next(message);
  }
  message->assign(frame_.begin() + static_cast<ptrdiff_t>(frame_offset_),
                  frame_.begin() + static_cast<ptrdiff_t>(frame_offset_ + length));
  frame_offset_ += length;
  return true;
}

// Leaves the next intact frame in `frame_`; false at the end of the file.
bool LogReader::ReadFrame() {
  frame_.clear();
  frame_offset_ = 0;
  while (true) {
    LogPrefix prefix{};
    const size_t size = ReadAt(offset_, &prefix, sizeof(prefix));
    if (size == sizeof(LogEnd) && prefix.magic == kLogEndMagic) {
      const auto end = std::bit_cast<LogEnd>(prefix);
      if (end.frames > next_number_) {
        damage_.push_back(std::to_string(end.frames - next_number_) +
                          " frames at the end of the log are damaged; their events are missing");
      }
      return false;
    }
    if (size == 0) {
      damage_.push_back("the log has no end mark: the recording was cut off after " +
                        std::to_string(next_number_) + " frames");
      return false;
    }
    if (size < sizeof(prefix)) {
      damage_.push_back("the log ends in the middle of " + FrameName(next_number_) +
                        ": the recording was cut off");
      return false;
    }
    if (!IsPrefix(prefix)) {
      damage_.push_back(FrameName(next_number_) + " of the log is damaged; its events are missing");
      if (!FindNextPrefix(offset_ + 1)) return false;
      continue;
    }
    if (prefix.number > next_number_ &&
        (damage_.empty() || damage_.back().find("damaged") == std::string::npos)) {
      damage_.push_back(std::to_string(prefix.number - next_number_) +
                        " frames of the log are missing");
    }
    std::vector<std::byte> compressed(prefix.compressed_bytes);
    const uint64_t begin = offset_ + sizeof(prefix);
    const size_t available = ReadAt(begin, compressed.data(), compressed.size());
    if (available < compressed.size()) {
      damage_.push_back("the log ends in the middle of " + FrameName(prefix.number) +
                        ": the recording was cut off");
      return false;
    }
    frame_.resize(prefix.uncompressed_bytes);
    const size_t result =
        ZSTD_decompress(frame_.data(), frame_.size(), compressed.data(), compressed.size());
    next_number_ = prefix.number + 1;
    offset_ = begin + prefix.compressed_bytes;
    if (!ZSTD_isError(result) && result == frame_.size()) return true;
    damage_.push_back(FrameName(prefix.number) + " of the log is damaged (" +
                      (ZSTD_isError(result) ? ZSTD_getErrorName(result) : "wrong length") +
                      "); its events are missing");
    frame_.clear();
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
