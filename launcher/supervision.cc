// One thread, one poll: signals arrive through a signalfd, the analyzer's words through its pipe.
//
// Signals: what a terminal sends (Ctrl-C) has reached the whole process group already, so only what
// a process sent to the launcher alone is passed on. Once the target has ended, a further Ctrl-C
// gives up waiting for the report.
#include "launcher/supervision.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <vector>

#include "launcher/analyzer_process.h"
#include "launcher/device.h"
#include "launcher/environment.h"
#include "launcher/exit_code.h"
#include "launcher/last_captures.h"
#include "launcher/replay_folder.h"
#include "proto/session.h"

namespace ops_debug::launcher {
namespace {

std::string NewRingName() {
  std::random_device random;
  return "ops-debug-" + std::to_string(getpid()) + '-' + std::to_string(random());
}

// The analyzer removes the ring's name when it ends; this covers its violent end.
struct RingName {
  std::string name = NewRingName();
  ~RingName() { shm_unlink(('/' + name).c_str()); }
};

class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
      sigaddset(&set, number);
    }
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  int fd() const { return fd_.get(); }
  bool Next(signalfd_siginfo* info) const {
    return read(fd_.get(), info, sizeof(*info)) == static_cast<ssize_t>(sizeof(*info));
  }

 private:
  FileDescriptor fd_;
};

int CodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// Between SIGTERM and SIGKILL to a process that hangs.
constexpr std::chrono::seconds kPatience{5};

// The exit code of `process`, if it has ended.
std::optional<int> Reap(pid_t process) {
  int status = 0;
  return waitpid(process, &status, WNOHANG) == process ? std::optional(CodeOf(status))
                                                       : std::nullopt;
}

class Supervisor {
 public:
  Supervisor(SignalQueue& signals, AnalyzerProcess& analyzer, const std::string& output)
      : signals_(signals), analyzer_(analyzer), output_(output) {}

  // Until the target has ended. Its exit code.
  int WaitForTarget(pid_t target) {
    while (true) {
      if (const auto code = Reap(target)) return *code;
      EndStubbornProcesses();
      Poll([target](const signalfd_siginfo& info) {
        const bool from_terminal = info.ssi_code == SI_KERNEL;
        if (!from_terminal) kill(target, static_cast<int>(info.ssi_signo));
      });
      if (!analyzer_open_ && !told_of_death_) {
        told_of_death_ = true;
        Tell({"the analyzer ended before the program did; the program goes on unobserved",
              "was it killed, or is memory short?", kExitToolFailure});
      }
    }
  }

  // Until the analyzer has said its last word. Who does not want to wait for replays gets the
  // report without them at the first Ctrl-C.
  std::variant<proto::Verdict, Problem> WaitForVerdict(uint64_t replay_time_s = 0) {
    analyzer_.EndOfTarget();
    bool give_up = false;
    while (analyzer_open_ && !give_up) {
      EndStubbornProcesses();
      TellOfReplays(replay_time_s);
      Poll([this, &give_up](const signalfd_siginfo& info) {
        if (info.ssi_signo != SIGINT && info.ssi_signo != SIGTERM) return;
        give_up |= replays_ == Replays::kNone || replays_ == Replays::kSkipped;
        if (give_up) return;
        replays_ = Replays::kSkipped;
        analyzer_.SkipReplays();
      });
    }
    if (give_up) kill(analyzer_.process_id(), SIGKILL);
    analyzer_.End();
    RemoveUnfinishedReport(output_);
    if (give_up) {
      return Problem{"interrupted while the report was being written", "", kExitToolFailure};
    }
    return analyzer_.Outcome();
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Replays : uint8_t { kNone, kGoOn, kTold, kSkipped };
  // That was asked to end.
  struct EndingProcess {
    pid_t process_id = 0;
    FileDescriptor handle;  // names this process even when its id is used again
    Clock::time_point last_moment;
  };

  // A process that waits for a launch which can never end.
  void EndProcess(const AnalyzerProcess::Request& request) {
    FileDescriptor handle(static_cast<int>(syscall(SYS_pidfd_open, request.hanging_process, 0)));
    if (handle.get() < 0) return;  // it is gone
    std::cerr << "ops-debug: " << request.text << "; ending the process\n";
    syscall(SYS_pidfd_send_signal, handle.get(), SIGTERM, nullptr, 0);
    ending_.push_back({request.hanging_process, std::move(handle), Clock::now() + kPatience});
  }

  void EndStubbornProcesses() {
    for (EndingProcess& process : ending_) {
      if (process.handle.get() < 0 || Clock::now() < process.last_moment) continue;
      syscall(SYS_pidfd_send_signal, process.handle.get(), SIGKILL, nullptr, 0);
      process.handle.Close();
    }
  }

  // A word to whoever waits longer than they would expect to.
  void TellOfReplays(uint64_t replay_time_s) {
    if (replays_ != Replays::kGoOn || Clock::now() < replays_told_at_) return;
    replays_ = Replays::kTold;
    std::cerr << "ops-debug: " << launches_to_replay_
              << (launches_to_replay_ == 1 ? " launch is" : " launches are")
              << " still to be replayed on the CPU device (at most " << 3 * replay_time_s
              << " s; Ctrl-C leaves them out)\n";
  }

  // Milliseconds until there is something to do unasked.
  int Patience_ms() const {
    Clock::time_point next = Clock::time_point::max();
    if (replays_ == Replays::kGoOn) next = replays_told_at_;
    for (const EndingProcess& process : ending_) {
      if (process.handle.get() >= 0) next = std::min(next, process.last_moment);
    }
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
  }

  void Answer(const AnalyzerProcess::Request& request) {
    if (request.hanging_process > 0) EndProcess(request);
    if (request.launches_to_replay == 0 || replays_ != Replays::kNone) return;
    replays_ = Replays::kGoOn;
    launches_to_replay_ = request.launches_to_replay;
    replays_told_at_ = Clock::now() + std::chrono::seconds(1);
  }

  // Waits for something to happen. `on_signal` is called for each signal but SIGCHLD.
  template <class OnSignal>
  void Poll(OnSignal on_signal) {
    pollfd events[2] = {
        {.fd = signals_.fd(), .events = POLLIN, .revents = 0},
        {.fd = analyzer_open_ ? analyzer_.result_fd() : -1, .events = POLLIN, .revents = 0}};
    if (poll(events, 2, Patience_ms()) < 0) return;
    for (signalfd_siginfo info{}; signals_.Next(&info);) {
      if (info.ssi_signo != SIGCHLD) on_signal(info);
    }
    if (events[1].revents != 0) analyzer_open_ = analyzer_.ReadMore();
    while (const auto request = analyzer_.TakeRequest()) Answer(*request);
  }

  SignalQueue& signals_;
  AnalyzerProcess& analyzer_;
  const std::string output_;  // --output
  bool analyzer_open_ = true;
  bool told_of_death_ = false;
  std::vector<EndingProcess> ending_;
  Replays replays_ = Replays::kNone;
  uint64_t launches_to_replay_ = 0;
  Clock::time_point replays_told_at_;
};

int Finish(int program_code, const std::variant<proto::Verdict, Problem>& outcome,
           const ReportOptions& options, bool expects_checks) {
  if (const auto* problem = std::get_if<Problem>(&outcome)) return Tell(*problem);
  const ExitDecision decision =
      DecideExitCode(program_code, std::get<proto::Verdict>(outcome), options, expects_checks);
  if (decision.problem) Tell(*decision.problem);
  return decision.code;
}

}  // namespace

int RunUnderTool(const Installation& installation, const RunOptions& options, const Target& target,
                 bool* has_findings) {
  const auto device = ChooseDevice(options.device);
  if (const auto* problem = std::get_if<Problem>(&device)) return Tell(*problem);
  const RingName ring;
  ReplayFolder replays;
  if (WantsReplays(options, std::get<DeviceChoice>(device).kind)) {
    std::error_code error;
    const std::string parent = std::filesystem::temp_directory_path(error).string();
    RemoveDeadReplayFolders(parent);
    if (!replays.Create(parent)) {
      std::cerr << "ops-debug: warning: no launches will be replayed: cannot make a folder in "
                << (parent.empty() ? "TMPDIR" : parent) << ": " << strerror(errno) << '\n';
    }
  }
  if (!options.capture_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.capture_folder, error);
    if (error) {
      return Tell({"cannot make the folder " + options.capture_folder + ": " + error.message(),
                   "--capture-folder names another one", kExitToolFailure});
    }
    NoteCapture(options.capture_folder);
  }
  if (!options.capture_launch.empty()) {
    // Whoever finds the file there leaves it: another process of this run has written it.
    std::error_code error;
    std::filesystem::remove(options.capture_launch, error);
  }
  const Environment inherited = InheritedEnvironment();
  const auto environment = TargetEnvironment(
      inherited, installation, options, std::get<DeviceChoice>(device), ring.name, replays.path());
  if (const auto* problem = std::get_if<Problem>(&environment)) return Tell(*problem);
  auto analyzer = AnalyzerProcess::StartLive(installation, options, ring.name, replays.path(),
                                             target.expects_cuda);
  if (const auto* problem = std::get_if<Problem>(&analyzer)) return Tell(*problem);
  SignalQueue signals;  // from here on; until then Ctrl-C simply ends us, and the analyzer follows
  Environment target_environment = std::get<Environment>(environment);
  target_environment[proto::kEnvRing] = std::get<AnalyzerProcess>(analyzer).ring_name();
  Supervisor supervisor(signals, std::get<AnalyzerProcess>(analyzer), options.report.output);
  const auto started = Start({.path = target.path,
                              .arguments = target.arguments,
                              .environment = target_environment,
                              .fixed_addresses = options.schedule_seed.has_value()});
  if (const auto* problem = std::get_if<Problem>(&started)) {
    kill(std::get<AnalyzerProcess>(analyzer).process_id(), SIGKILL);
    std::get<AnalyzerProcess>(analyzer).End();
    RemoveUnfinishedReport(options.report.output);
    return Tell(*problem);
  }
  const int program_code = supervisor.WaitForTarget(std::get<pid_t>(started));
  const bool expects_checks = options.checks != "none" && options.rewrite != "null";
  const auto outcome = supervisor.WaitForVerdict(options.replay_time_s);
  const auto* verdict = std::get_if<proto::Verdict>(&outcome);
  if (has_findings != nullptr) *has_findings = verdict != nullptr && verdict->findings > 0;
  return Finish(program_code, outcome, options.report, expects_checks);
}

int ReportLogs(const Installation& installation, const ReportOptions& options,
               const std::vector<std::string>& logs) {
  SignalQueue signals;
  auto analyzer = AnalyzerProcess::StartOffline(installation, options, logs);
  if (const auto* problem = std::get_if<Problem>(&analyzer)) return Tell(*problem);
  Supervisor supervisor(signals, std::get<AnalyzerProcess>(analyzer), options.output);
  return Finish(0, supervisor.WaitForVerdict(), options, true);
}

}  // namespace ops_debug::launcher
