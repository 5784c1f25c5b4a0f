// Starting a program, and the ends of pipes.
#pragma once

#include <sys/types.h>

#include <string>
#include <variant>
#include <vector>

#include "launcher/diagnostics.h"
#include "launcher/environment.h"

namespace ops_debug::launcher {

// A file descriptor with one owner.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { Close(); }
  int get() const { return fd_; }
  int Release();
  void Close();

 private:
  int fd_ = -1;
};

// Both ends close on exec.
struct Pipe {
  FileDescriptor read, write;
  static Pipe Make();
};

struct ProgramStart {
  std::string path;
  std::vector<std::string> arguments;  // with the program's own name in front
  Environment environment;
  std::vector<int> inherited_fds;  // besides 0, 1 and 2
  bool without_stdin = false;      // /dev/null instead
  bool fixed_addresses = false;    // no address space randomisation, where the system allows it
};

// A reader of our messages that goes away (| head), or a limit on the file they go to, must not end
// a supervised run. Programs started later see both signals as they were before this call.
void IgnoreFailingOutput();

// The process id, or why the program did not start. Signals are unblocked and at their defaults in
// the program, but for those that were ignored before.
std::variant<pid_t, Problem> Start(const ProgramStart& program);

// Makes this process the program, with the inherited environment; returns only to say why not.
Problem Become(const std::string& path, std::vector<std::string> arguments);

}  // namespace ops_debug::launcher
