// Asking something that may crash, hang or talk without end: always in another process, with a time
// limit and a bound on what it may say.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/child_process.h"
#include "launcher/environment.h"

namespace ops_debug::launcher {

struct ProbeAnswer {
  bool started = false;
  bool timed_out = false;
  int exit_code = -1;  // 128 + signal if one killed it
  std::string output;  // its standard output

  bool ok() const { return started && !timed_out && exit_code == 0; }
  // Why there is no good answer, in words: "killed by signal 11", "no answer within 5 s".
  std::string Trouble() const;
};

class Probe {
 public:
  // Runs a program; its stdin is /dev/null, its stderr goes with stdout if `with_stderr`, else
  // nowhere.
  static Probe OfProgram(std::vector<std::string> arguments, const Environment& environment,
                         std::chrono::seconds limit, bool with_stderr = false);
  // Runs `body` in a fork; what it writes to the descriptor is the answer. Call it while this
  // process has one thread.
  static Probe OfFunction(const std::function<void(int)>& body, std::chrono::seconds limit);
  Probe(Probe&&) = default;
  ~Probe();

  // Waits until it has ended or its time is up; then it and what it started are killed.
  ProbeAnswer Finish();

 private:
  Probe() = default;
  pid_t process_ = -1;
  FileDescriptor answer_;
  std::chrono::seconds limit_{0};
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace ops_debug::launcher
