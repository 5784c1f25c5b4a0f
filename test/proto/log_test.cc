// The .odlog container: what is written comes back; cut or damaged files give every complete frame
// and say what is gone.
#include "proto/log.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/log_layout.h"

namespace ops_debug::proto {
namespace {

struct TemporaryFile {
  TemporaryFile() {
    static int number = 0;
    path = (std::filesystem::temp_directory_path() /
            ("ops-debug-log-" + std::to_string(getpid()) + "-" + std::to_string(++number)))
               .string();
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path;
};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Frames of two messages each: "0.0" "0.1" | "1.0" "1.1" | ...
std::string WriteFrames(const std::string& path, int frames, bool close) {
  auto writer = LogWriter::Create(path);
  REQUIRE(writer.ok());
  for (int frame = 0; frame < frames; ++frame) {
    for (int i = 0; i < 2; ++i) {
      const std::string text = std::to_string(frame) + "." + std::to_string(i);
      REQUIRE((*writer)->Append(Bytes(text)).ok());
    }
    REQUIRE((*writer)->Flush().ok());
  }
  if (close) REQUIRE((*writer)->Close().ok());
  writer->reset();
  return ReadFile(path);
}

struct Contents {
  std::string messages;  // joined by spaces
  std::string damage;    // joined by "; "
};

Contents ReadAll(const std::string& path) {
  auto reader = LogReader::Open(path);
  INFO(reader.status());
  REQUIRE(reader.ok());
  Contents contents;
  std::vector<std::byte> message;
  while ((*reader)->Next(&message)) {
    if (!contents.messages.empty()) contents.messages += ' ';
    contents.messages.append(reinterpret_cast<const char*>(message.data()), message.size());
  }
  for (const std::string& text : (*reader)->damage()) {
    if (!contents.damage.empty()) contents.damage += "; ";
    contents.damage += text;
  }
  return contents;
}

std::string OpenError(const std::string& path) {
  const auto reader = LogReader::Open(path);
  return reader.ok() ? "(opened)" : std::string(reader.status().message());
}

size_t FrameOffset(const std::string& bytes, uint32_t number) {
  for (size_t i = 0; i + sizeof(LogPrefix) <= bytes.size(); ++i) {
    LogPrefix prefix;
    std::memcpy(&prefix, bytes.data() + i, sizeof(prefix));
    if (prefix.magic == kLogPrefixMagic && prefix.checksum == prefix.Checksum() &&
        prefix.number == number) {
      return i;
    }
  }
  FAIL("no frame " << number);
  return 0;
}

TEST_CASE("a closed log gives back every message and reports no damage") {
  const TemporaryFile file;
  WriteFrames(file.path, 3, true);
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "0.0 0.1 1.0 1.1 2.0 2.1");
  REQUIRE(contents.damage == "");
}

TEST_CASE("a log without messages is a valid log") {
  const TemporaryFile file;
  WriteFrames(file.path, 0, true);
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "");
  REQUIRE(contents.damage == "");
}

TEST_CASE("empty and long messages survive, and frames close by themselves when full") {
  const TemporaryFile file;
  const std::string incompressible = [] {
    std::string text(3 * kLogFrameBytes, '\0');
    uint64_t seed = 1;
    for (char& c : text) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      c = static_cast<char>(seed >> 56);
    }
    return text;
  }();
  {
    auto writer = LogWriter::Create(file.path);
    REQUIRE((*writer)->Append({}).ok());
    REQUIRE((*writer)->Append(Bytes(incompressible)).ok());
    REQUIRE(std::filesystem::file_size(file.path) > 3 * kLogFrameBytes);
    REQUIRE((*writer)->Close().ok());
  }
  auto reader = LogReader::Open(file.path);
  std::vector<std::byte> message;
  REQUIRE((*reader)->Next(&message));
  REQUIRE(message.empty());
  REQUIRE((*reader)->Next(&message));
  const auto expected = Bytes(incompressible);
  REQUIRE(std::equal(message.begin(), message.end(), expected.begin(), expected.end()));
  REQUIRE_FALSE((*reader)->Next(&message));
}

TEST_CASE("a message that no reader would accept is refused, and the log goes on") {
  const TemporaryFile file;
  auto writer = LogWriter::Create(file.path);
  const std::string huge(kLogMaxMessageBytes + 1, 'x');
  REQUIRE_FALSE((*writer)->Append(Bytes(huge)).ok());
  REQUIRE((*writer)->Append(Bytes("next")).ok());
  REQUIRE((*writer)->Close().ok());
  REQUIRE(ReadAll(file.path).messages == "next");
}

TEST_CASE("a second after the first message a frame is on disk") {
  const TemporaryFile file;
  auto writer = LogWriter::Create(file.path);
  REQUIRE((*writer)->Append(Bytes("old")).ok());
  REQUIRE((*writer)->FlushIfDue().ok());
  REQUIRE(ReadAll(file.path).messages == "");
  usleep(1'050'000);
  REQUIRE((*writer)->FlushIfDue().ok());
  REQUIRE(ReadAll(file.path).messages == "old");
}

TEST_CASE("zstd itself can read the file") {
  const TemporaryFile file;
  WriteFrames(file.path, 2, true);
  const std::string command = "zstd -dc < " + file.path + " 2>/dev/null";
  if (system("command -v zstd > /dev/null") != 0) return;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[64] = {};
  const size_t size = fread(buffer, 1, sizeof(buffer), pipe);
  REQUIRE(pclose(pipe) == 0);
  REQUIRE(std::string(buffer, size) == std::string("\3") + "0.0\3" + "0.1\3" + "1.0\3" + "1.1");
}

TEST_CASE("kill -9 of the writer loses at most the frame that was being filled") {
  const TemporaryFile file;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto writer = LogWriter::Create(file.path);
    (*writer)->Append(Bytes("kept")).IgnoreError();
    (*writer)->Flush().IgnoreError();
    (*writer)->Append(Bytes("lost")).IgnoreError();
    if (write(ready[1], "r", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "kept");
  REQUIRE(contents.damage == "the log has no end mark: the recording was cut off after 1 frame");
}

TEST_CASE("cut anywhere, a log still gives its complete frames and says that it was cut") {
  const TemporaryFile file;
  const std::string whole = WriteFrames(file.path, 3, true);
  const size_t second = FrameOffset(whole, 1);
  const size_t third = FrameOffset(whole, 2);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(file.path, whole.substr(0, size));
    const Contents contents = ReadAll(file.path);
    const std::string expected = size < second                          ? ""
                                 : size < third                         ? "0.0 0.1"
                                 : size < whole.size() - sizeof(LogEnd) ? "0.0 0.1 1.0 1.1"
                                                                        : "0.0 0.1 1.0 1.1 2.0 2.1";
    INFO("cut at " << size);
    REQUIRE(contents.messages == expected);
    REQUIRE(contents.damage.find("cut off") != std::string::npos);
  }
}

TEST_CASE("any flipped bit behind the header is noticed and costs one frame at most") {
  const TemporaryFile file;
  const std::string whole = WriteFrames(file.path, 3, true);
  for (size_t bit = 8 * sizeof(LogHeader); bit < 8 * (whole.size() - sizeof(LogEnd)); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    WriteFile(file.path, damaged);
    const Contents contents = ReadAll(file.path);
    const size_t place = bit / 8;
    const std::string expected = place < FrameOffset(whole, 1)   ? "1.0 1.1 2.0 2.1"
                                 : place < FrameOffset(whole, 2) ? "0.0 0.1 2.0 2.1"
                                                                 : "0.0 0.1 1.0 1.1";
    INFO("bit " << bit << ", damage: " << contents.damage);
    // A flip in zstd's own header (its window size) may leave the content untouched; then nothing
    // is lost.
    if (contents.messages == "0.0 0.1 1.0 1.1 2.0 2.1") continue;
    REQUIRE(contents.messages == expected);
    REQUIRE(contents.damage != "");
  }
}

TEST_CASE("a frame cut out of the middle is missed") {
  const TemporaryFile file;
  const std::string whole = WriteFrames(file.path, 3, true);
  const size_t second = FrameOffset(whole, 1);
  const size_t third = FrameOffset(whole, 2);
  WriteFile(file.path, whole.substr(0, second) + whole.substr(third));
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "0.0 0.1 2.0 2.1");
  REQUIRE(contents.damage == "1 frames of the log are missing");
}

TEST_CASE("what is no log is refused in words") {
  const TemporaryFile file;
  REQUIRE(OpenError("/nonexistent/x.odlog").find("No such file or directory") != std::string::npos);
  REQUIRE(OpenError("/").find("is a folder, not a log") != std::string::npos);
  WriteFile(file.path, "PK\3\4 some other format that is long enough");
  REQUIRE(OpenError(file.path) == "\"" + file.path + "\" is not an ops-debug log");
  std::string future = WriteFrames(file.path, 1, true);
  future[offsetof(LogHeader, version)] = 9;
  WriteFile(file.path, future);
  REQUIRE(OpenError(file.path).find("format version 9; this ops-debug reads 1") !=
          std::string::npos);
}

TEST_CASE("lengths made to exhaust memory are refused") {
  const TemporaryFile file;
  std::string bytes = WriteFrames(file.path, 2, true);
  LogPrefix prefix;
  const size_t offset = FrameOffset(bytes, 0);
  std::memcpy(&prefix, bytes.data() + offset, sizeof(prefix));
  prefix.uncompressed_bytes = prefix.compressed_bytes = 0xffffffff;
  prefix.checksum = prefix.Checksum();
  std::memcpy(bytes.data() + offset, &prefix, sizeof(prefix));
  WriteFile(file.path, bytes);
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "1.0 1.1");
  REQUIRE(contents.damage == "frame 1 of the log is damaged; its events are missing");
}

TEST_CASE("a file made of lies is read in no time, and its damage told in few words") {
  const TemporaryFile file;
  std::string bytes = WriteFrames(file.path, 1, false);
  // Each claims that 16 MB come out of the 4 bytes behind it.
  for (uint32_t number = 1; number < 40'000; ++number) {
    LogPrefix prefix{
        .number = number, .compressed_bytes = 4, .uncompressed_bytes = kLogMaxFrameBytes};
    prefix.checksum = prefix.Checksum();
    bytes.append(reinterpret_cast<const char*>(&prefix), sizeof(prefix)).append("lies");
  }
  WriteFile(file.path, bytes);
  const auto start = std::chrono::steady_clock::now();
  const Contents contents = ReadAll(file.path);
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  REQUIRE(contents.messages == "0.0 0.1");
  REQUIRE(contents.damage.size() < 5000);
  REQUIRE(contents.damage.find("more damaged places") != std::string::npos);
}

TEST_CASE("frames whose messages are malformed are left one after the other") {
  const TemporaryFile file;
  std::string bytes = WriteFrames(file.path, 0, false);
  // The text of each frame is one byte: a message of 127 bytes follows, and nothing follows.
  std::string content(64, '\0');
  const char promise = 127;
  content.resize(ZSTD_compress(content.data(), content.size(), &promise, 1, 3));
  for (uint32_t number = 0; number < 100'000; ++number) {
    LogPrefix prefix{.number = number,
                     .compressed_bytes = static_cast<uint32_t>(content.size()),
                     .uncompressed_bytes = 1};
    prefix.checksum = prefix.Checksum();
    bytes.append(reinterpret_cast<const char*>(&prefix), sizeof(prefix)).append(content);
  }
  WriteFile(file.path, bytes);
  const Contents contents = ReadAll(file.path);
  REQUIRE(contents.messages == "");
  REQUIRE(contents.damage.find("malformed") != std::string::npos);
}

TEST_CASE("a full disk is an error that stays") {
  const TemporaryFile file;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto writer = LogWriter::Create(file.path);
    const rlimit limit{30, 30};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool appended = (*writer)->Append(Bytes("x")).ok();
    const absl::Status first = (*writer)->Flush();
    const absl::Status again = (*writer)->Append(Bytes("y"));
    _exit(appended && !first.ok() && first == again ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
}

TEST_CASE("a place that cannot be written is refused in words") {
  const auto writer = LogWriter::Create("/nonexistent/directory/x.odlog");
  REQUIRE_FALSE(writer.ok());
  REQUIRE(std::string(writer.status().message()).find("cannot write log") != std::string::npos);
}

}  // namespace
}  // namespace ops_debug::proto
