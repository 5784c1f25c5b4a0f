// Writes the .odlog container (log.h).
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <cstring>

#include "proto/log.h"
#include "proto/log_layout.h"

namespace ops_debug::proto {
namespace {

constexpr std::chrono::seconds kFrameAge{1};
constexpr int kCompressionLevel = 3;

template <class T>
std::span<const std::byte> BytesOf(const T& record) {
  return std::as_bytes(std::span(&record, 1));
}

void AppendVarint(uint64_t value, std::vector<std::byte>* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<std::byte>(value | 0x80));
  out->push_back(static_cast<std::byte>(value));
}

struct CompressionContext {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ~CompressionContext() { ZSTD_freeCCtx(context); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<LogWriter>> LogWriter::Create(const std::string& path) {
  // Not blocking: a named pipe that nobody reads must not hold up a run before it began.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot write log \"" + path + "\"");
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  auto writer = std::unique_ptr<LogWriter>(new LogWriter(fd, path));
  LogHeader header;
  std::memcpy(header.name, kLogName, sizeof(header.name));
  const absl::Status status = writer->WriteAll(BytesOf(header));
  if (!status.ok()) return status;
  return writer;
}

LogWriter::~LogWriter() {
  Flush().IgnoreError();
  close(fd_);
}

absl::Status LogWriter::Append(std::span<const std::byte> message) {
  if (!status_.ok()) return status_;
  if (message.size() > kLogMaxMessageBytes) {
    return absl::InvalidArgumentError("an event of " + std::to_string(message.size()) +
                                      " bytes is too long for the log");
  }
  if (frame_.empty()) frame_start_ = std::chrono::steady_clock::now();
  AppendVarint(message.size(), &frame_);
  frame_.insert(frame_.end(), message.begin(), message.end());
  ++messages_;
  return frame_.size() >= kLogFrameBytes ? Flush() : FlushIfDue();
}

absl::Status LogWriter::FlushIfDue() {
  if (frame_.empty() || std::chrono::steady_clock::now() - frame_start_ < kFrameAge) {
    return status_;
  }
  return Flush();
}

absl::Status LogWriter::Flush() {
  if (!status_.ok() || frame_.empty()) return status_;
  std::vector<std::byte> out(sizeof(LogPrefix) + ZSTD_compressBound(frame_.size()));
  const CompressionContext compression;
  ZSTD_CCtx_setParameter(compression.context, ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_CCtx_setParameter(compression.context, ZSTD_c_checksumFlag, 1);
  const size_t size = ZSTD_compress2(compression.context, out.data() + sizeof(LogPrefix),
                                     out.size() - sizeof(LogPrefix), frame_.data(), frame_.size());
  if (ZSTD_isError(size)) {
    status_ = absl::InternalError(std::string("zstd: ") + ZSTD_getErrorName(size));
    return status_;
  }
  LogPrefix prefix{.number = frames_,
                   .compressed_bytes = static_cast<uint32_t>(size),
                   .uncompressed_bytes = static_cast<uint32_t>(frame_.size())};
  prefix.checksum = prefix.Checksum();
  std::memcpy(out.data(), &prefix, sizeof(prefix));
  ++frames_;
  frame_.clear();
  return WriteAll(std::span(out).first(sizeof(prefix) + size));
}

absl::Status LogWriter::Close() {
  const absl::Status status = Flush();
  if (!status.ok()) return status;
  return WriteAll(BytesOf(LogEnd{.frames = frames_, .messages = messages_}));
}

absl::Status LogWriter::WriteAll(std::span<const std::byte> bytes) {
  const size_t size_bytes = bytes.size();
  while (status_.ok() && !bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      status_ = absl::ErrnoToStatus(errno, "cannot write log \"" + path_ + "\"");
      // The piece of a frame that still fitted would only be damage. Nothing to cut in a pipe.
      if (ftruncate(fd_, static_cast<off_t>(whole_bytes_)) != 0) break;
    }
  }
  if (status_.ok()) whole_bytes_ += size_bytes;
  return status_;
}

}  // namespace ops_debug::proto
