// A probe is the leader of a process group of its own, so that a time limit ends whatever it
// started as well (a shell that waits for nvcc that waits for a network file system).
#include "launcher/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ops_debug::launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostBytes = 256 << 10;

void PrepareChild(int answer, bool with_stderr) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(answer, STDOUT_FILENO);
  dup2(with_stderr ? answer : null, STDERR_FILENO);
}

}  // namespace

std::string ProbeAnswer::Trouble() const {
  if (!started) return "cannot be started";
  if (timed_out) return "does not answer";
  if (exit_code > 128) return "was killed by signal " + std::to_string(exit_code - 128);
  return "failed with exit code " + std::to_string(exit_code);
}

Probe Probe::OfFunction(const std::function<void(int)>& body, std::chrono::seconds limit) {
  Probe probe;
  probe.limit_ = limit;
  Pipe pipe = Pipe::Make();
  if (pipe.read.get() < 0) return probe;
  const pid_t child = fork();
  if (child == 0) {
    PrepareChild(pipe.write.get(), false);
    body(pipe.write.get());
    _exit(0);
  }
  if (child < 0) return probe;
  setpgid(child, child);
  probe.process_ = child;
  probe.answer_ = std::move(pipe.read);
  probe.deadline_ = Clock::now() + limit;
  return probe;
}

Probe Probe::OfProgram(std::vector<std::string> arguments, const Environment& environment,
                       std::chrono::seconds limit, bool with_stderr) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + '=' + value);
  const auto run = [&](int answer) {
    if (with_stderr) dup2(answer, STDERR_FILENO);
    std::vector<char*> argv, envp;
    for (std::string& text : arguments) argv.push_back(text.data());
    for (std::string& text : variables) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  };
  return OfFunction(run, limit);
}

Probe::~Probe() {
  if (process_ > 0) Finish();
}

ProbeAnswer Probe::Finish() {
  ProbeAnswer answer;
  if (process_ <= 0) return answer;
  answer.started = true;
  while (answer.output.size() < kMostBytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    pollfd state{.fd = answer_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&state, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      answer.timed_out = true;
      break;
    }
    char buffer[4096];
    const ssize_t size = read(answer_.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    answer.output.append(buffer, static_cast<size_t>(size));
  }
  // It may have closed its output and go on, or have left children behind.
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(process_, &status, WNOHANG)) == 0 && !answer.timed_out &&
         answer.output.size() < kMostBytes) {
    answer.timed_out = Clock::now() >= deadline_;
    usleep(1000);
  }
  kill(-process_, SIGKILL);
  if (ended == 0) {
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = -1;
  answer.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return answer;
}

}  // namespace ops_debug::launcher
