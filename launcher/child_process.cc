// fork and exec; a pipe that closes on exec brings back errno if exec fails.
#include "launcher/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ops_debug::launcher {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Of failing output, and what programs that we start get for them.
struct ChangedSignal {
  int number;
  void (*inherited)(int);
};
ChangedSignal g_changed_signals[] = {{SIGPIPE, SIG_ERR}, {SIGXFSZ, SIG_ERR}};

// In the process that becomes the program.
void RestoreSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const ChangedSignal& changed : g_changed_signals) {
    if (changed.inherited != SIG_ERR) signal(changed.number, changed.inherited);
  }
}

Problem CannotRun(const std::string& path, int fault) {
  Problem problem{"cannot run " + path + ": " + strerror(fault), ""};
  if (fault == ENOEXEC) problem.hint = "is it built for this machine? A script needs a #! line";
  if (fault == ENOENT)
    problem.hint = "is the interpreter in its first line, or its loader, installed?";
  if (fault == E2BIG) problem.hint = "arguments and environment are too long";
  return problem;
}

}  // namespace

void IgnoreFailingOutput() {
  for (ChangedSignal& changed : g_changed_signals) {
    changed.inherited = signal(changed.number, SIG_IGN);
  }
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.Release();
  }
  return *this;
}

int FileDescriptor::Release() { return std::exchange(fd_, -1); }

void FileDescriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Pipe Pipe::Make() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::variant<pid_t, Problem> Start(const ProgramStart& program) {
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : program.environment) variables.push_back(name + '=' + value);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  Pipe failure = Pipe::Make();
  const pid_t child = fork();
  if (child < 0) {
    return Problem{"cannot start a process: " + std::string(strerror(errno)),
                   "is a limit on processes or memory reached?", kExitToolFailure};
  }
  if (child == 0) {
    RestoreSignals();
    for (const int fd : program.inherited_fds) fcntl(fd, F_SETFD, 0);
    if (program.without_stdin) {
      const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (null >= 0) dup2(null, STDIN_FILENO);
    }
    if (program.fixed_addresses) personality(PER_LINUX | ADDR_NO_RANDOMIZE);
    execve(program.path.c_str(), argv.data(), envp.data());
    const int fault = errno;
    const ssize_t written = write(failure.write.get(), &fault, sizeof(fault));
    _exit(written == sizeof(fault) ? 127 : 126);
  }
  failure.write.Close();
  int fault = 0;
  ssize_t size = 0;
  do {
    size = read(failure.read.get(), &fault, sizeof(fault));
  } while (size < 0 && errno == EINTR);
  if (size != sizeof(fault)) return child;
  waitpid(child, nullptr, 0);
  return CannotRun(program.path, fault);
}

Problem Become(const std::string& path, std::vector<std::string> arguments) {
  const std::vector<char*> argv = Pointers(arguments);
  RestoreSignals();
  execv(path.c_str(), argv.data());
  return CannotRun(path, errno);
}

}  // namespace ops_debug::launcher
