// File names, and events sorted by process (run_log.h).
#include "analysis/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

namespace ops_debug::analysis {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".odlog";
// So many events without a deed are written anyway.
constexpr size_t kMostWaiting = 64;

// Program names and ranks come from other processes, and become part of a path. A dot stands only
// between letters and digits ("python3.12").
std::string FileNamePart(const std::string& text) {
  constexpr size_t kLongest = 64;
  std::string part = text.substr(0, kLongest);
  const auto is_plain = [&](size_t i) {
    return i < part.size() && std::isalnum(static_cast<unsigned char>(part[i])) != 0;
  };
  for (size_t i = 0; i < part.size(); ++i) {
    const bool inner_dot = part[i] == '.' && i > 0 && is_plain(i - 1) && is_plain(i + 1);
    if (!is_plain(i) && !inner_dot && std::strchr("-_+", part[i]) == nullptr) part[i] = '_';
  }
  return part.empty() ? "program" : part;
}

std::string Stem(uint32_t process_id, const proto::ProcessStart& start) {
  std::string stem = FileNamePart(start.executable().substr(start.executable().rfind('/') + 1));
  if (!start.rank().empty()) stem += ".rank" + FileNamePart(start.rank());
  return stem + '.' + std::to_string(process_id);
}

// Whether the process has done something that a report would tell.
bool IsDeed(const proto::Event& event) {
  switch (event.body_case()) {
    case proto::Event::kProcessStart:
      return false;
    case proto::Event::kProcessEnd:
      return !event.process_end().orderly();
    case proto::Event::kDiagnostic:
      return event.process_id() == 0 ||
             event.diagnostic().severity() != proto::Diagnostic::SEVERITY_NOTE;
    default:
      return true;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunLog>> RunLog::Open(const std::string& path) {
  std::error_code error;
  const bool wants_folder = !path.empty() && path.back() == '/';
  if (!wants_folder && !fs::is_directory(path, error)) {
    auto created = proto::LogWriter::Create(path);
    if (!created.ok()) return created.status();
    std::unique_ptr<RunLog> log(new RunLog(""));
    log->single_ = std::move(*created);
    return log;
  }
  fs::create_directories(path, error);
  if (!fs::is_directory(path) || access(path.c_str(), W_OK | X_OK) != 0) {
    const std::string why = error ? error.message() : "no permission to write there";
    return absl::PermissionDeniedError("cannot write logs into \"" + path + "\": " + why);
  }
  return std::unique_ptr<RunLog>(new RunLog(path));
}

// Creates the file if there is none yet, and writes what waits.
absl::Status RunLog::WriteOut(ProcessLog& log) {
  if (log.writer == nullptr) {
    std::string name = log.stem;
    std::error_code error;
    for (int k = 2; fs::exists(fs::path(folder_) / (name + kExtension), error); ++k) {
      name = log.stem + '.' + std::to_string(k);
    }
    auto created = proto::LogWriter::Create((fs::path(folder_) / (name + kExtension)).string());
    if (!created.ok()) return created.status();
    log.writer = std::move(*created);
    any_file_ = true;
  }
  for (const std::vector<std::byte>& message : log.waiting) {
    if (absl::Status status = log.writer->Append(message); !status.ok()) return status;
  }
  log.waiting.clear();
  return absl::OkStatus();
}

// Nothing more comes from this process, or from this program of it.
void RunLog::SetAside(uint32_t process_id) {
  ProcessLog& log = logs_[process_id];
  if (log.writer == nullptr) aside_.push_back(std::move(log));
  logs_.erase(process_id);
}

absl::Status RunLog::Append(const proto::Event& event, std::span<const std::byte> message) {
  if (single_ != nullptr) return single_->Append(message);
  const uint32_t process_id = event.process_id();
  // exec: the old program's log is whole.
  if (event.has_process_start() && !logs_[process_id].stem.empty()) {
    ProcessLog& old = logs_[process_id];
    if (old.writer != nullptr) {
      if (absl::Status status = old.writer->Close(); !status.ok()) return status;
    }
    SetAside(process_id);
  }
  ProcessLog& log = logs_[process_id];
  if (event.has_process_start()) log.stem = Stem(process_id, event.process_start());
  if (process_id == 0) log.stem = "run." + std::to_string(getpid());
  log.waiting.emplace_back(message.begin(), message.end());
  const bool is_overdue = log.waiting.size() > kMostWaiting;
  if (is_overdue && log.stem.empty()) log.stem = "unnamed." + std::to_string(process_id);
  const bool write = log.writer != nullptr || is_overdue || (!log.stem.empty() && IsDeed(event)) ||
                     // Deeds that came before the process had said who it is.
                     (event.has_process_start() && log.waiting.size() > 1);
  if (write) {
    if (absl::Status status = WriteOut(log); !status.ok()) return status;
  }
  if (!event.has_process_end() || !event.process_end().orderly()) return absl::OkStatus();
  // Many short-lived children must not keep as many files open.
  if (log.writer != nullptr) {
    if (absl::Status status = log.writer->Close(); !status.ok()) return status;
  }
  SetAside(process_id);
  return absl::OkStatus();
}

absl::Status RunLog::FlushIfDue() {
  if (single_ != nullptr) return single_->FlushIfDue();
  for (auto& [process_id, log] : logs_) {
    if (log.writer == nullptr) continue;
    if (absl::Status status = log.writer->FlushIfDue(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RunLog::Close() {
  if (single_ != nullptr) return single_->Close();
  absl::Status first;
  for (auto& [process_id, log] : logs_) {
    // It only had something to say, such as that it could not begin.
    if (log.stem.empty()) log.stem = "unnamed." + std::to_string(process_id);
    // That it did not end is worth a file, too.
    first.Update(WriteOut(log));
    if (log.writer != nullptr) first.Update(log.writer->Close());
  }
  logs_.clear();
  const bool has_file = any_file_;
  for (ProcessLog& log : aside_) {
    if (has_file || log.waiting.empty()) continue;
    first.Update(WriteOut(log));
    if (log.writer != nullptr) first.Update(log.writer->Close());
  }
  aside_.clear();
  return first;
}

absl::StatusOr<std::vector<std::string>> FindLogs(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::vector<std::string> logs;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == kExtension) logs.push_back(entry.path().string());
  }
  if (error) return absl::NotFoundError("cannot read folder \"" + path + "\": " + error.message());
  if (logs.empty()) {
    return absl::NotFoundError("no log in folder \"" + path + "\" (files *" + kExtension + ')');
  }
  std::sort(logs.begin(), logs.end());
  return logs;
}

}  // namespace ops_debug::analysis
