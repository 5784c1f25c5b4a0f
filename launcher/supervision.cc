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
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <random>

#include "launcher/analyzer_process.h"
#include "launcher/device.h"
#include "launcher/environment.h"
#include "launcher/exit_code.h"
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

  // Until the analyzer has said its last word.
  std::variant<proto::Verdict, Problem> WaitForVerdict() {
    analyzer_.EndOfTarget();
    bool give_up = false;
    while (analyzer_open_ && !give_up) {
      Poll([&give_up](const signalfd_siginfo& info) {
        give_up |= info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM;
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
  // Waits for something to happen. `on_signal` is called for each signal but SIGCHLD.
  template <class OnSignal>
  void Poll(OnSignal on_signal) {
    pollfd events[2] = {
        {.fd = signals_.fd(), .events = POLLIN, .revents = 0},
        {.fd = analyzer_open_ ? analyzer_.result_fd() : -1, .events = POLLIN, .revents = 0}};
    if (poll(events, 2, -1) < 0) return;
    for (signalfd_siginfo info{}; signals_.Next(&info);) {
      if (info.ssi_signo != SIGCHLD) on_signal(info);
    }
    if (events[1].revents != 0) analyzer_open_ = analyzer_.ReadMore();
  }

  SignalQueue& signals_;
  AnalyzerProcess& analyzer_;
  const std::string output_;  // --output
  bool analyzer_open_ = true;
  bool told_of_death_ = false;
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
  const Environment inherited = InheritedEnvironment();
  const auto environment = TargetEnvironment(inherited, installation, options,
                                             std::get<DeviceChoice>(device), ring.name);
  if (const auto* problem = std::get_if<Problem>(&environment)) return Tell(*problem);
  auto analyzer = AnalyzerProcess::StartLive(installation, options, ring.name, target.expects_cuda);
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
  const auto outcome = supervisor.WaitForVerdict();
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
