// --schedules K: the whole target under the schedules 1 to K of the emulator.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/installation.h"
#include "launcher/run_options.h"
#include "launcher/supervision.h"

namespace ops_debug::launcher {

// Runs the target once per seed, as many at a time as there are cores, and stops at the lowest seed
// that fails: findings, an exit code other than 0, a signal. With `compare_outputs`, also outputs
// of the runner (--save-outputs) that differ from those of the default schedule. Prints what the
// failing run printed and how to run it again; returns its exit code, or 0.
int RunSchedules(const Installation& installation, const RunOptions& options, const Target& target,
                 uint64_t count, bool compare_outputs);

}  // namespace ops_debug::launcher
