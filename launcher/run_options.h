// The flags of a run, checked and typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/flags.h"

namespace ops_debug::launcher {

enum class DeviceKind { kAuto, kGpu, kEmulator };

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kAuto;
  std::optional<uint32_t> index;  // gpu:N
};

struct ReportOptions {
  std::string format = "text";
  std::string output;                          // empty: stderr in a run, stdout of `report`
  int error_exit_code = kDefaultExitFindings;  // 0: findings do not change the exit code
  std::optional<double> required_coverage_percent;
  std::vector<std::string> suppressions;  // files
  bool generate_suppressions = false;
  bool list_kernels = false;
  std::string precision_trace;  // file for the conversions that were counted; empty: none
};

struct RunOptions {
  ReportOptions report;
  DeviceChoice device;
  // Of "memory", "race", "sync", "init", "precision", with commas; or "none".
  std::string checks = "memory";
  std::string rewrite = "checks";
  std::string on_error = "skip";
  std::string emulate;  // models of the emulator's devices; empty: its default
  std::string log;
  std::optional<uint64_t> quarantine_bytes;
  std::string engine = "auto";
  std::string ptx_store;  // empty: the default folder; "none": in memory only
  bool tensors = true;
  bool leak_check = false;
  std::string kernel_name;                            // regular expression; empty: all
  std::optional<uint64_t> launch_skip, launch_count;  // per kernel
  std::optional<uint64_t> sample;                     // check one launch in so many
  std::optional<uint64_t> schedule_seed;  // of the emulator; unset: the default schedule
  std::optional<uint64_t> schedules;      // try the seeds 1 to this
  // Launches with something that the GPU cannot decide are run once more on the CPU device.
  bool replay = true;
  uint64_t replay_memory_bytes = 64 << 20;  // of one such launch
  uint64_t replay_time_s = 20;              // of one replay
  std::string race_memory = "all";          // or "shared"
  std::string capture_launch;               // file for one launch; empty: none
  std::string capture_tensors;              // regular expression of kernels; empty: none
  std::string capture_folder;               // for their tensors, absolute
  uint64_t capture_bytes = 1ull << 30;      // most of their values

  bool trace_conversions = false;  // "precision" counts all of them

  bool Has(const std::string& check) const;
  // Of `checks`, those that a replay decides; empty: none.
  std::string ReplayChecks() const;
};

// Whether launches are to be captured for replays. The emulator's own checks leave nothing open;
// with --engine ptx it stands for a GPU.
bool WantsReplays(const RunOptions& options, DeviceKind device);

std::variant<ReportOptions, Problem> ReadReportOptions(const FlagValues& values);
// `default_checks` are those of a command without --check.
std::variant<RunOptions, Problem> ReadRunOptions(const FlagValues& values,
                                                 const std::string& default_checks = "memory");

}  // namespace ops_debug::launcher
