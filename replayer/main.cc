// ops-debug-replayer CAPTURE: makes captured launches again on the CPU device, as a target of
// `ops-debug run --device emulator`, whose checks decide there what a GPU could not.
//
// The order matters: the captured addresses are taken before the driver is loaded, which maps
// memory of its own.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "replayer/address_space.h"
#include "replayer/capture.h"
#include "replayer/replay.h"

namespace ops_debug::replayer {
namespace {

constexpr int kExitUsage = 2;

// The kernels' printf has printed already, in the program.
void SilenceOutput() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
}

Outcome ReplayFile(const std::string& path, char** arguments) {
  proto::Capture capture;
  if (Outcome outcome = ReadCapture(path, &capture); !outcome.ok()) return outcome;
  std::string reason;
  if (!MapPages(PagesOf(capture), &reason)) {
    TryAnotherLayout(arguments);
    return {OutcomeKind::kUnplaceable, "memory of the launch at " + reason};
  }
  Driver driver;
  if (Outcome outcome = LoadDriver(&driver); !outcome.ok()) return outcome;
  return Replay(driver, &capture);
}

int Main(int count, char** arguments) {
  const bool keeps_result = count == 2;
  if (count != 2 && !(count == 3 && std::string(arguments[1]) == "--no-result")) {
    std::fputs(
        "usage: ops-debug-replayer [--no-result] CAPTURE\n"
        "Makes captured launches again. ops-debug starts it by itself (--replay on); by hand:\n"
        "  ops-debug run --device emulator --check race,sync,init -- ops-debug-replayer CAPTURE\n",
        stderr);
    return kExitUsage;
  }
  SilenceOutput();
  const std::string path = arguments[count - 1];
  const Outcome outcome = ReplayFile(path, arguments);
  if (!outcome.ok()) {
    const std::string word(WordOf(outcome.kind));
    std::fprintf(stderr, "ops-debug-replayer: %s: %s\n", word.c_str(), outcome.reason.c_str());
  }
  if (keeps_result) WriteOutcome(path, outcome);
  return static_cast<int>(outcome.kind);
}

}  // namespace
}  // namespace ops_debug::replayer

int main(int count, char** arguments) { return ops_debug::replayer::Main(count, arguments); }
