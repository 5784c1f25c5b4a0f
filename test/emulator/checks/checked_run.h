// Runs small PTX kernels with checks on and keeps what they report, one line per finding.
#pragma once

#include <string>
#include <vector>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {

struct CheckedRun {
  LaunchOutcome outcome;
  // "divergent-barrier at `bar.sync 0;` block (0,0,0) thread (0,0,0) x1: 16 threads WHAT at `...`;
  // ..."
  std::vector<std::string> faults;
  // "1: store `...` / load `...`, missing 1": kind, both sides, proto MissingOrder;
  // ", same value" behind it if both wrote the same.
  std::vector<std::string> races;
};

// `body` as for RunBody, which says which registers exist.
CheckedRun RunChecked(const std::string& body, RunOptions options = {});

// All lines, one below the other; "silent" if there are none.
std::string Faults(const std::string& body, RunOptions options = {});
std::string Races(const std::string& body, RunOptions options = {});

}  // namespace ops_debug::emulator
