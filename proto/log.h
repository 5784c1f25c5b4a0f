// The event log (.odlog): the ring's messages, unchanged, in checksummed zstd frames.
//
// The file is a sequence of zstd frames and skippable frames (RFC 8878, 3.1.2), so `zstd -dc FILE`
// works on it too:
//
//   file header   skippable   "ODLOG", version
//   per frame:    skippable   sizes and number of the frame that follows, with a checksum of their
//   own
//                 zstd        length-delimited messages (varint, bytes), content checksum on
//   end mark      skippable   number of frames and messages; absent if the recording was cut off
//
// A frame is written by one write() and at the latest a second after its first message, so whatever
// kills the recorder, the file reads up to the last frame. The frame prefix lets a reader find the
// next frame behind a damaged one.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ops_debug::proto {

class LogWriter {
 public:
  // Creates or replaces `path`.
  static absl::StatusOr<std::unique_ptr<LogWriter>> Create(const std::string& path);
  ~LogWriter();  // without Close(): what was appended is written, the end mark is not
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Errors (disk full...) are final: later calls return the first one.
  absl::Status Append(std::span<const std::byte> message);
  absl::Status Flush();       // writes the frame that is being filled, if any
  absl::Status FlushIfDue();  // the same once its first message is a second old; call it when idle
  absl::Status Close();       // Flush and end mark

 private:
  LogWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  absl::Status WriteAll(std::span<const std::byte> bytes);

  int fd_;
  std::string path_;
  absl::Status status_;
  std::vector<std::byte> frame_;  // uncompressed
  std::chrono::steady_clock::time_point frame_start_;
  uint32_t frames_ = 0;
  uint64_t messages_ = 0;
  uint64_t whole_bytes_ = 0;  // of the file: header and whole frames
};

class LogReader {
 public:
  // Errors: no such file, no log at all, a version that this reader does not know. A file that was
  // cut off before its header was complete is a log without frames.
  static absl::StatusOr<std::unique_ptr<LogReader>> Open(const std::string& path);
  ~LogReader();
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // Next message; false at the end. Messages of damaged frames are left out and `damage` says so.
  bool Next(std::vector<std::byte>* message);
  // What is missing, in sentences for the user; complete when Next has returned false.
  const std::vector<std::string>& damage() const { return damage_; }

 private:
  explicit LogReader(int fd) : fd_(fd) {}
  bool ReadFrame();
  bool FindNextPrefix(uint64_t from);
  size_t ReadAt(uint64_t offset, void* data, size_t size_bytes) const;

  int fd_;
  uint64_t offset_ = 0;  // of the next prefix or end mark
  bool cut_header_ = false;
  void Damage(std::string text);

  // Of the largest frame's size once there is a frame, and never cleared: a file made to waste time
  // cannot make us fill it for each of its lies.
  std::unique_ptr<std::byte[]> frame_;
  size_t frame_size_ = 0;
  size_t frame_offset_ = 0;
  uint32_t next_number_ = 0;
  std::vector<std::string> damage_;
  uint64_t more_damage_ = 0;  // that damage_ does not list
};

}  // namespace ops_debug::proto
