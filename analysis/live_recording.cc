// The loop of a live run. It polls: producers make no system call to wake anybody, and a nap of at
// most 10 ms is nothing beside the ring's room.
#include "analysis/live_recording.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "analysis/demangle.h"
#include "analysis/session_processes.h"

namespace ops_debug::analysis {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLongestNap_ms = 10;
// For what descendants that still run are writing when the target is gone.
constexpr std::chrono::seconds kFarewell{2};
// So many messages at a time: a flood must not keep us from noticing the target's end.
constexpr int kBatch = 4096;
constexpr std::chrono::seconds kLossInterval{1};
constexpr useconds_t kFarewellNap_us = 5000;
// Where forks go on all the time, so many looks must find no process of the run.
constexpr int kEmptyLooks = 20;

class Recorder {
 public:
  Recorder(RunLog* log, EventAnalysis& analysis, const ReplayOptions& replays)
      : log_(log),
        analysis_(analysis),
        replays_(replays, [this](const proto::Event& event) { Take(event); }) {}

  Replays& replays() { return replays_; }

  // A message of the program. Findings of replays belong to a process before its end, so its end,
  // and what another program says that goes on under its id, waits for them.
  void Receive(const std::vector<std::byte>& message) {
    proto::Event event;
    if (!event.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      Take(message);
      return;
    }
    const uint32_t process_id = event.process_id();
    if (const auto held = held_.find(process_id); held != held_.end()) {
      held->second.push_back(message);
      return;
    }
    if ((event.has_process_end() || event.has_process_start()) && replays_.Owes(process_id)) {
      replays_.EndOfProcess(process_id);
      if (replays_.Owes(process_id)) {
        held_[process_id].push_back(message);
        return;
      }
    }
    replays_.See(event);
    Take(message);
  }

  // Goes on with the replays and with what waits for them.
  void Replay() {
    replays_.Look();
    for (auto entry = held_.begin(); entry != held_.end();) {
      if (replays_.Owes(entry->first)) {
        ++entry;
        continue;
      }
      const std::deque<std::vector<std::byte>> messages = std::move(entry->second);
      held_.erase(entry);
      for (const std::vector<std::byte>& message : messages) Receive(message);
      entry = held_.begin();  // some may be held again
    }
  }

  // Whether the process has ended, though the analysis has not been told yet.
  bool HoldsEndOf(uint32_t process_id) const { return held_.contains(process_id); }

  void Take(const std::vector<std::byte>& message) {
    proto::Event event;
    if (!event.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      analysis_.AddUnreadable();
      event.Clear();  // the log keeps the bytes
    } else {
      analysis_.Add(event);
    }
    Log([&] { return log_->Append(event, message); });
  }

  // An event of the analyzer itself: `process_id` is 0, or that of the process it is about.
  void Take(const proto::Event& event) {
    std::vector<std::byte> message(event.ByteSizeLong());
    event.SerializeToArray(message.data(), static_cast<int>(message.size()));
    Take(message);
  }

  void Remark(proto::Diagnostic::Severity severity, const std::string& text,
              const std::string& hint, uint32_t process_id = 0) {
    proto::Event event;
    event.set_process_id(process_id);
    event.mutable_diagnostic()->set_severity(severity);
    event.mutable_diagnostic()->set_text(text);
    event.mutable_diagnostic()->set_hint(hint);
    Take(event);
  }

  void Idle() {
    Log([&] { return log_->FlushIfDue(); });
  }

  void Close() {
    Log([&] { return log_->Close(); });
  }

 private:
  template <class Action>
  void Log(Action action) {
    if (log_ == nullptr) return;
    const absl::Status status = action();
    if (status.ok() || status.code() == absl::StatusCode::kInvalidArgument) return;
    log_ = nullptr;
    analysis_.AddRemark({Severity::kWarning, std::string(status.message()),
                         "the log ends before this run does; the report is complete"});
  }

  RunLog* log_;
  EventAnalysis& analysis_;
  Replays replays_;
  std::map<uint32_t, std::deque<std::vector<std::byte>>> held_;  // by process id
};

enum class TargetState { kRuns, kEnded, kAbandoned };

// The launcher writes a byte when the target has ended; if the pipe closes without one, the
// launcher was killed.
TargetState LookAtTarget(int control_fd, int timeout_ms) {
  pollfd state{.fd = control_fd, .events = POLLIN, .revents = 0};
  if (poll(&state, 1, timeout_ms) <= 0) return TargetState::kRuns;
  char byte = 0;
  return read(control_fd, &byte, 1) == 1 ? TargetState::kEnded : TargetState::kAbandoned;
}

std::vector<uint32_t> StillRunning(const EventAnalysis& analysis) {
  std::vector<uint32_t> processes = analysis.OpenProcesses();
  std::erase_if(processes, [](uint32_t process) { return !IsRunning(process); });
  return processes;
}

// Returns how many messages there were: kBatch if there may be more.
int Drain(proto::RingConsumer& ring, Recorder& recorder) {
  std::vector<std::byte> message;
  int count = 0;
  while (count < kBatch && ring.Read(&message)) {
    recorder.Receive(message);
    ++count;
  }
  return count;
}

// Losses go into the log as they happen, so that a log which is cut off tells of them too.
class LossRecord {
 public:
  LossRecord(const proto::RingConsumer& ring, Recorder& recorder)
      : ring_(ring), recorder_(recorder) {}

  void UpdateIfDue() {
    if (Clock::now() < next_) return;
    next_ = Clock::now() + kLossInterval;
    Update();
  }

  void Update() {
    const uint64_t lost = ring_.lost_messages() + ring_.corrupt_records();
    if (lost <= told_) return;
    proto::Event event;
    event.mutable_lost_events()->set_count(lost - told_);
    recorder_.Take(event);
    told_ = lost;
  }

 private:
  const proto::RingConsumer& ring_;
  Recorder& recorder_;
  uint64_t told_ = 0;
  Clock::time_point next_ = Clock::now() + kLossInterval;
};

// Whether all processes of the run are gone. A look during which something was forked proves
// nothing: a daemon's fork can end between the moments at which the table names it and its child.
class Absence {
 public:
  Absence(const proto::RingConsumer& ring, const EventAnalysis& analysis)
      : ring_(ring), analysis_(analysis) {}

  bool Look() {
    const std::string last = LastProcessId();
    if (!StillRunning(analysis_).empty() || !FindSessionProcesses(ring_.name()).empty()) {
      empty_looks_ = 0;
      return false;
    }
    return ++empty_looks_ >= kEmptyLooks || (!last.empty() && LastProcessId() == last);
  }

 private:
  const proto::RingConsumer& ring_;
  const EventAnalysis& analysis_;
  int empty_looks_ = 0;
};

// Launches that hang and can never end: their process would wait for them for ever.
void TellHangs(const proto::RingConsumer& ring, Recorder& recorder, const LiveOptions& options) {
  for (const ProvedHang& hang : recorder.replays().TakeHangs()) {
    // The number came from the program: nothing outside of this run is ended.
    const std::vector<SessionProcess> processes = FindSessionProcesses(ring.name());
    const bool is_ours = std::any_of(
        processes.begin(), processes.end(),
        [&hang](const SessionProcess& process) { return process.process_id == hang.process_id; });
    char running[32];
    constexpr double kSecond_ns = 1e9;
    std::snprintf(running, sizeof(running), "%.0f s",
                  static_cast<double>(hang.running_ns) / kSecond_ns);
    const std::string launch = "launch " + std::to_string(hang.launch.launch_id()) + " of " +
                               Demangle(hang.launch.kernel()) + " in process " +
                               std::to_string(hang.process_id) + " can never end";
    const bool ends = is_ours && options.tell_hang != nullptr;
    recorder.Remark(proto::Diagnostic::SEVERITY_WARNING,
                    launch +
                        ": its replay on the CPU device proved that its threads wait for each "
                        "other, and it had been running for " +
                        running + (ends ? "; ops-debug ended the process" : ""),
                    "the deadlock's report says who waits where", hang.process_id);
    if (ends) options.tell_hang(hang.process_id, launch);
  }
}

// Reads what was written until now, and what the processes that still run write within a bounded
// time. After that, producers drop; a record that its producer holds unfinished is given up.
void TakeFarewell(proto::RingConsumer& ring, Recorder& recorder, const EventAnalysis& analysis) {
  const Clock::time_point deadline = Clock::now() + kFarewell;
  Absence absence(ring, analysis);
  while (Clock::now() < deadline) {
    const int count = Drain(ring, recorder);
    recorder.Replay();
    if (count > 0) continue;
    if (!ring.HasUnread() && absence.Look()) break;
    usleep(kFarewellNap_us);
  }
  ring.Close();
  const Clock::time_point end = Clock::now() + kFarewell;
  while ((Drain(ring, recorder) > 0 || ring.SkipClaimed()) && Clock::now() < end) {
  }
}

// Replays what is left, for a bounded time.
void FinishReplays(TargetState target, Recorder& recorder, const LiveOptions& options) {
  Replays& replays = recorder.replays();
  replays.EndOfPrograms();
  recorder.Replay();
  if (replays.OwesAny() && options.tell_replaying) options.tell_replaying(replays.LaunchesOwed());
  while (replays.OwesAny()) {
    if (target == TargetState::kAbandoned)
      replays.Abandon("ops-debug was killed before its replay");
    if (options.is_interrupted && options.is_interrupted()) {
      replays.Abandon("its replay was interrupted");
    }
    recorder.Replay();
    recorder.Idle();
    usleep(kFarewellNap_us);
  }
  recorder.Replay();
}

// Descendants that have not used CUDA, but may later, unseen.
void RemarkOnSilentProcesses(const proto::RingConsumer& ring, Recorder& recorder,
                             const EventAnalysis& analysis) {
  const std::vector<uint32_t> announced = StillRunning(analysis);
  std::string names;
  size_t count = 0;
  constexpr size_t kNamed = 4;
  for (const SessionProcess& process : FindSessionProcesses(ring.name())) {
    if (std::find(announced.begin(), announced.end(), process.process_id) != announced.end()) {
      continue;
    }
    if (++count > kNamed) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(process.process_id) + " (" +
             process.name + ')';
  }
  if (count == 0) return;
  if (count > kNamed) names += " and " + std::to_string(count - kNamed) + " more";
  recorder.Remark(proto::Diagnostic::SEVERITY_NOTE,
                  (count == 1 ? "process " : "processes ") + names +
                      (count == 1 ? " was" : " were") +
                      " still running when the program ended; CUDA calls that come later are not "
                      "in this report",
                  "run a daemon in the foreground to have it checked");
}

}  // namespace

void RecordLive(proto::RingConsumer& ring, RunLog* log, const LiveOptions& options,
                EventAnalysis& analysis) {
  Recorder recorder(log, analysis, options.replays);
  LossRecord losses(ring, recorder);
  if (!options.ring_note.empty()) {
    recorder.Remark(proto::Diagnostic::SEVERITY_WARNING, options.ring_note,
                    "ops-debug doctor tells how much shared memory there is");
  }
  TargetState target = TargetState::kRuns;
  for (int nap_ms = 1; target == TargetState::kRuns;) {
    const int count = Drain(ring, recorder);
    nap_ms = count > 0 ? 1 : std::min(nap_ms * 2, kLongestNap_ms);
    recorder.Replay();
    TellHangs(ring, recorder, options);
    recorder.Idle();
    losses.UpdateIfDue();
    target = LookAtTarget(options.control_fd, count == kBatch ? 0 : nap_ms);
  }
  TakeFarewell(ring, recorder, analysis);
  std::vector<uint32_t> running = StillRunning(analysis);
  std::erase_if(running, [&](uint32_t process) { return recorder.HoldsEndOf(process); });
  FinishReplays(target, recorder, options);
  for (const uint32_t process : running) {
    proto::Event event;
    event.set_process_id(process);
    event.mutable_process_end()->set_still_running(true);
    recorder.Take(event);
  }
  RemarkOnSilentProcesses(ring, recorder, analysis);
  losses.Update();
  if (target == TargetState::kAbandoned) {
    recorder.Remark(proto::Diagnostic::SEVERITY_ERROR,
                    "ops-debug was killed before the program ended; what the program did after "
                    "that is not in this report",
                    "was it kill -9, or is memory short? The program itself was left alone");
  }
  if (ring.unmapped_producers() > 0) {
    recorder.Remark(proto::Diagnostic::SEVERITY_ERROR,
                    std::to_string(ring.unmapped_producers()) +
                        (ring.unmapped_producers() == 1 ? " process" : " processes") +
                        " had no room to map the event ring; nothing done there was checked",
                    "raise the limit on address space (ulimit -v)");
  }
  if (ring.corrupt_records() > 0) {
    recorder.Remark(
        proto::Diagnostic::SEVERITY_WARNING,
        "the event ring was damaged: " + std::to_string(ring.corrupt_records()) +
            " records were not readable",
        "the program may have written through a wild host pointer; try it under AddressSanitizer");
  }
  if (!analysis.saw_process() && options.tell_no_cuda) {
    proto::Event event;
    event.mutable_diagnostic()->set_severity(proto::Diagnostic::SEVERITY_NOTE);
    event.mutable_diagnostic()->set_text("no CUDA driver call was seen");
    event.mutable_diagnostic()->set_hint(
        "nothing to check if the program does not use the GPU; else it may be linked statically, "
        "set-uid, or reach the "
        "driver through a CUDA 11 run-time's private tables");
    recorder.Take(event);
  }
  recorder.Close();
}

absl::Status ReadLog(const std::string& path, EventAnalysis& analysis) {
  const auto logs = FindLogs(path);
  if (!logs.ok()) return logs.status();
  const bool is_folder = logs->size() != 1 || logs->front() != path;
  size_t read = 0;
  for (const std::string& log : *logs) {
    auto reader = proto::LogReader::Open(log);
    if (!reader.ok()) {
      if (!is_folder) return reader.status();
      analysis.AddRemark({Severity::kWarning, std::string(reader.status().message()),
                          "it is left out; the other logs of the folder were read"});
      continue;
    }
    ++read;
    analysis.NextRecording();
    std::vector<std::byte> message;
    while ((*reader)->Next(&message)) analysis.AddMessage(message);
    // An error, not a warning: what is missing may have held findings, so this is no clean run.
    for (const std::string& damage : (*reader)->damage()) {
      analysis.AddRemark(
          {Severity::kError,
           is_folder ? std::filesystem::path(log).filename().string() + ": " + damage : damage,
           ""});
    }
  }
  if (read == 0) return absl::InvalidArgumentError("no log in \"" + path + "\" can be read");
  return absl::OkStatus();
}

}  // namespace ops_debug::analysis
