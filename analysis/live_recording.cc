// The loop of a live run. It polls: producers make no system call to wake anybody, and a nap of at
// most 10 ms is nothing beside the ring's room.
#include "analysis/live_recording.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace ops_debug::analysis {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLongestNap_ms = 10;
// For records that somebody has claimed but not committed when the target is gone: descendants that
// still run.
constexpr std::chrono::seconds kFarewell{2};

class Recorder {
 public:
  Recorder(proto::LogWriter* log, EventAnalysis& analysis) : log_(log), analysis_(analysis) {}

  void Take(const std::vector<std::byte>& message) {
    analysis_.AddMessage(message);
    Log([&] { return log_->Append(message); });
  }

  // An event of the analyzer itself; `process_id` 0.
  void Take(const proto::Event& event) {
    std::vector<std::byte> message(event.ByteSizeLong());
    event.SerializeToArray(message.data(), static_cast<int>(message.size()));
    Take(message);
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

  proto::LogWriter* log_;
  EventAnalysis& analysis_;
};

bool HasClosed(int fd, int timeout_ms) {
  pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&state, 1, timeout_ms) <= 0) return false;
  char byte = 0;
  return read(fd, &byte, 1) <= 0;
}

bool Drain(proto::RingConsumer& ring, Recorder& recorder) {
  std::vector<std::byte> message;
  bool any = false;
  while (ring.Read(&message)) {
    recorder.Take(message);
    any = true;
  }
  return any;
}

}  // namespace

void RecordLive(proto::RingConsumer& ring, proto::LogWriter* log, const LiveOptions& options,
                EventAnalysis& analysis) {
  Recorder recorder(log, analysis);
  for (int nap_ms = 1;;) {
    nap_ms = Drain(ring, recorder) ? 1 : std::min(nap_ms * 2, kLongestNap_ms);
    recorder.Idle();
    if (HasClosed(options.control_fd, nap_ms)) break;
  }
  const Clock::time_point deadline = Clock::now() + kFarewell;
  Drain(ring, recorder);
  while (ring.HasUnread() && Clock::now() < deadline) {
    if (!Drain(ring, recorder)) usleep(1000);
  }
  const uint64_t lost = ring.lost_messages() + ring.corrupt_records();
  if (lost > 0) {
    proto::Event event;
    event.mutable_lost_events()->set_count(lost);
    recorder.Take(event);
  }
  if (ring.corrupt_records() > 0) {
    proto::Event event;
    event.mutable_diagnostic()->set_severity(proto::Diagnostic::SEVERITY_WARNING);
    event.mutable_diagnostic()->set_text(
        "the event ring was damaged: " + std::to_string(ring.corrupt_records()) +
        " records were not readable");
    event.mutable_diagnostic()->set_hint(
        "the program may have written through a wild host pointer; try it under AddressSanitizer");
    recorder.Take(event);
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
  auto reader = proto::LogReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::vector<std::byte> message;
  while ((*reader)->Next(&message)) analysis.AddMessage(message);
  for (const std::string& damage : (*reader)->damage()) {
    analysis.AddRemark({Severity::kWarning, damage, ""});
  }
  return absl::OkStatus();
}

}  // namespace ops_debug::analysis
