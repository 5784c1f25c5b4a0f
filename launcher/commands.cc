// What can follow "ops-debug".
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "launcher/command.h"
#include "launcher/compare_process.h"
#include "launcher/device.h"
#include "launcher/doctor.h"
#include "launcher/environment.h"
#include "launcher/run_options.h"
#include "launcher/schedules.h"
#include "launcher/supervision.h"
#include "launcher/target_program.h"

namespace ops_debug::launcher {
namespace {

// Runs the command behind "--".
int RunProgram(const Installation& installation, const FlagValues& values, const char* name,
               const char* default_checks = "memory") {
  if (!values.operands.empty()) {
    return Tell({"\"" + values.operands.front() + "\" stands before --",
                 "put the program behind it: ops-debug " + std::string(name) + " -- " +
                     values.operands.front()});
  }
  if (values.command.empty()) {
    return Tell({"there is no program to run",
                 "ops-debug " + std::string(name) + " -- ./program arguments"});
  }
  const auto options = ReadRunOptions(values, default_checks);
  if (const auto* problem = std::get_if<Problem>(&options)) return Tell(*problem);
  const auto program = FindTarget(values.command.front());
  if (const auto* problem = std::get_if<Problem>(&program)) return Tell(*problem);
  const TargetProgram& target = std::get<TargetProgram>(program);
  if (!target.warning.empty()) std::cerr << "ops-debug: warning: " << target.warning << '\n';
  const Target started{.path = target.path, .arguments = values.command};
  const RunOptions& run = std::get<RunOptions>(options);
  if (run.schedules) return RunSchedules(installation, run, started, *run.schedules, false);
  return RunUnderTool(installation, run, started);
}

// Runs one kernel file through ops-debug-runner.
int RunKernelFile(const Installation& installation, const FlagValues& values,
                  const char* default_checks) {
  if (!values.operands.empty()) {
    return Tell({"\"" + values.operands.front() + "\" belongs to no flag",
                 "arguments of a program stand behind --"});
  }
  const auto options = ReadRunOptions(values, default_checks);
  if (const auto* problem = std::get_if<Problem>(&options)) return Tell(*problem);
  Target target{
      .path = installation.runner, .arguments = {"ops-debug-runner"}, .expects_cuda = false};
  const RunOptions& run = std::get<RunOptions>(options);
  // In a search for schedules the outputs belong to the runs; they are compared, then dropped.
  const bool compares = run.schedules && !values.Has("any-output");
  if (compares && values.Has("save-outputs")) {
    return Tell({"--save-outputs and --schedules exclude each other",
                 "save the outputs of one schedule: --schedule-seed N instead of --schedules K"});
  }
  for (const Flag& flag : kKernelFlags) {
    if (std::string(flag.name) == "any-output") continue;
    for (const std::string& value : values.All(flag.name)) {
      // One word, so that a value may begin with a dash.
      target.arguments.push_back(std::string("--") + flag.name +
                                 (flag.argument != nullptr ? '=' + value : ""));
    }
  }
  if (values.has_separator) {
    target.arguments.push_back("--");
    target.arguments.insert(target.arguments.end(), values.command.begin(), values.command.end());
  }
  if (run.schedules) return RunSchedules(installation, run, target, *run.schedules, compares);
  return RunUnderTool(installation, run, target);
}

int Run(const Installation& installation, const FlagValues& values) {
  return RunProgram(installation, values, "run");
}

// A program, or a kernel file if --kernel is given.
int Check(const Installation& installation, const FlagValues& values, const char* name,
          const char* default_checks) {
  if (values.Has("kernel")) return RunKernelFile(installation, values, default_checks);
  for (const Flag& flag : kKernelFlags) {
    // Boundaries are what memory checking is about, whatever runs.
    if (values.Has(flag.name) && std::string(flag.name) != "check-boundary") {
      return Tell(
          {"--" + std::string(flag.name) + " needs --kernel FILE",
           "ops-debug " + std::string(name) + " --kernel kernel.cu --" + flag.name + " ..."});
    }
  }
  return RunProgram(installation, values, name, default_checks);
}

int CheckMemory(const Installation& installation, const FlagValues& values) {
  return Check(installation, values, "check-memory", "memory");
}

int CheckSync(const Installation& installation, const FlagValues& values) {
  return Check(installation, values, "check-sync", "race,sync,init");
}

// A launch that --capture-launch saved, by itself, on the CPU device: the only one that can place
// its memory where it was.
int Replay(const Installation& installation, const FlagValues& values) {
  if (values.operands.size() != 1 || values.has_separator) {
    return Tell({values.operands.empty() ? "there is no launch to replay"
                                         : "one launch is replayed at a time",
                 "ops-debug replay FILE, where FILE was written with run --capture-launch FILE"});
  }
  const std::string& file = values.operands.front();
  if (access(file.c_str(), R_OK) != 0) {
    return Tell({"cannot read " + file + ": " + strerror(errno),
                 "run --capture-launch FILE writes such a file"});
  }
  auto options = ReadRunOptions(values, "all");
  if (const auto* problem = std::get_if<Problem>(&options)) return Tell(*problem);
  RunOptions& run = std::get<RunOptions>(options);
  if (run.device.kind == DeviceKind::kGpu) {
    return Tell(
        {"a captured launch is replayed on the CPU device: a GPU cannot place memory at "
         "chosen addresses",
         "leave --device away"});
  }
  run.device.kind = DeviceKind::kEmulator;
  return RunUnderTool(
      installation, run,
      {.path = installation.replayer, .arguments = {"ops-debug-replayer", "--no-result", file}});
}

int CheckPrecision(const Installation& installation, const FlagValues& values) {
  return Check(installation, values, "check-precision", "precision");
}

int Report(const Installation& installation, const FlagValues& values) {
  std::vector<std::string> files = values.operands;
  files.insert(files.end(), values.command.begin(), values.command.end());
  if (files.empty()) {
    return Tell({"there is no log to report",
                 "ops-debug report FILE, where FILE was written with --log FILE"});
  }
  const auto options = ReadReportOptions(values);
  if (const auto* problem = std::get_if<Problem>(&options)) return Tell(*problem);
  return ReportLogs(installation, std::get<ReportOptions>(options), files);
}

// The device is chosen here, where GPUs are known.
int Validate(const Installation& installation, const FlagValues& values) {
  FlagValues wish;
  if (values.Has("device")) wish.Add("device", values.Get("device"));
  const auto options = ReadRunOptions(wish);
  if (const auto* problem = std::get_if<Problem>(&options)) return Tell(*problem);
  const auto chosen = ChooseDevice(std::get<RunOptions>(options).device);
  if (const auto* problem = std::get_if<Problem>(&chosen)) return Tell(*problem);
  const DeviceChoice& device = std::get<DeviceChoice>(chosen);
  if (device.index) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    setenv("CUDA_VISIBLE_DEVICES",
           VisibleDevice(visible != nullptr ? visible : "", *device.index).c_str(), 1);
  }
  const char* kind = device.kind == DeviceKind::kGpu ? "gpu" : "emulator";
  return BecomeCompare(installation, "validate", kValidateFlags, values,
                       {std::string("--chosen-device=") + kind});
}

int Diff(const Installation& installation, const FlagValues& values) {
  return BecomeCompare(installation, "diff", kDiffFlags, values);
}

const Command kCommands[] = {
    {"check-memory",
     "find out-of-bounds, use-after-free and misaligned accesses",
     "[FLAGS] -- PROGRAM [ARGUMENTS]\n"
     "       ops-debug check-memory [FLAGS] --kernel FILE [KERNEL FLAGS] [-- ARGUMENTS]",
     "ops-debug check-memory -- python3 train.py\n"
     "ops-debug check-memory --kernel examples/matmul_kernel.cu --input-shape 1024x1024",
     {{"Flags", &kRunFlags}, {"Kernel flags", &kKernelFlags}},
     CheckMemory},
    {"check-sync",
     "find data races, faults of barriers, deadlocks, uninitialised reads, unordered streams",
     "[FLAGS] -- PROGRAM [ARGUMENTS]\n"
     "       ops-debug check-sync [FLAGS] --kernel FILE [KERNEL FLAGS] [-- ARGUMENTS]",
     "ops-debug check-sync -- ./my_program\n"
     "ops-debug check-sync --kernel reduce_sum.cu --block-size 256",
     {{"Flags", &kSyncFlags}, {"Common flags", &kRunFlags}, {"Kernel flags", &kKernelFlags}},
     CheckSync},
    {"check-precision",
     "find NaN, infinity, overflow, lost precision and index arithmetic that wraps, by line",
     "[FLAGS] -- PROGRAM [ARGUMENTS]\n"
     "       ops-debug check-precision [FLAGS] --kernel FILE [KERNEL FLAGS] [-- ARGUMENTS]",
     "ops-debug check-precision -- python3 train.py\n"
     "ops-debug check-precision --kernel examples/layer_norm.cu --trace-fp16-to-fp32",
     {{"Flags", &kPrecisionFlags}, {"Common flags", &kRunFlags}, {"Kernel flags", &kKernelFlags}},
     CheckPrecision},
    {"run",
     "run a program under chosen checks",
     "[FLAGS] -- PROGRAM [ARGUMENTS]",
     "ops-debug run --check memory --log run.odlog -- ./my_program 1024\n"
     "ops-debug run --check all -- python3 train.py",
     {{"Flags", &kCheckFlags}, {"Common flags", &kRunFlags}},
     Run},
    {"replay",
     "run one captured launch again, by itself, on the CPU device",
     "[FLAGS] FILE",
     "ops-debug run --capture-launch launch.capture --kernel-name softmax -- python3 train.py\n"
     "ops-debug replay launch.capture --check race,sync",
     {{"Flags", &kReplayFlags}, {"Common flags", &kRunFlags}},
     Replay},
    {"report",
     "print the report of recorded logs again, merged if there are several",
     "[FLAGS] FILE|FOLDER ...",
     "ops-debug report run.odlog --format json --output report.json\n"
     "ops-debug report logs-of-all-ranks/",
     {{"Flags", &kReportFlags}},
     Report},
    {"validate",
     "hold an operator and its gradients against a reference",
     "OP --reference REF --input-shape SHAPE [FLAGS]\n\n"
     "OP and REF are providers: builtin:NAME, a .cu or .ptx file, FILE.cu:KERNEL, torch.nn.NAME,\n"
     "package.module:function, FILE.py:FUNCTION, a .onnx model, saved tensors, a name in\n"
     "ops-debug.yaml, or a short name: NAME.cu, NAME.py, NAME.onnx or a kernel NAME in the "
     "current\nfolder.",
     "ops-debug validate conv2d_depthwise --reference torch.nn.Conv2d --input-shape 1x32x224x224\n"
     "ops-debug validate softmax.cu --reference builtin:softmax --input-shape 64x1000 --sweep",
     {{"Flags", &kValidateFlags}},
     Validate,
     "Exit codes: 0 right; 86 wrong; 2 usage; 3 a provider or the tool failed; 4 it could not be\n"
     "judged, with the provider's reason.\n"},
    {"diff",
     "compare saved tensors: what differs, how much, where, and which first",
     "[FLAGS] [A B]\n\n"
     "A and B are .npy, .npz or .safetensors files, or folders of them: candidate and reference.\n"
     "Without them: the pair of the last `ops-debug validate`, or, if that was later, the last run "
     "with\n"
     "--capture against the one before it.",
     "ops-debug diff mine.safetensors theirs.npz --rtol 1e-4\n"
     "ops-debug diff run-a/ run-b/ --map names.map --format html --output diff.html --heatmap",
     {{"Flags", &kDiffFlags}},
     Diff,
     "Exit codes: 0 equal within the tolerance; 86 not, or something is missing on one side; 2\n"
     "usage; 3 a file cannot be read.\n"},
    {"doctor",
     "tell what this machine lets ops-debug do, what is missing and what that costs",
     "[FLAGS]\n\nExits with 0 if programs can be checked on a GPU, 4 if only the emulator works, 3 "
     "if "
     "neither does.",
     "ops-debug doctor --format json",
     {{"Flags", &kDoctorFlags}},
     Doctor},
};

constexpr char kExitCodes[] =
    "Exit codes: the program's own when clean (128 + signal if one killed it); 86 if there are\n"
    "errors among the findings (warnings do not count); 2 usage; 3 the tool failed; 4 launches\n"
    "were seen and none, or too few, could be checked.\n";

std::string Indented(const std::string& lines) {
  std::istringstream in(lines);
  std::string text;
  for (std::string line; std::getline(in, line);) text += "  " + line + '\n';
  return text;
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

std::string DescribeCommand(const Command& command) {
  std::string text = std::string("ops-debug ") + command.name + ": " + command.summary +
                     "\n\nUsage: ops-debug " + command.name + ' ' + command.usage + "\n\n";
  for (const FlagGroup& group : command.groups) {
    text += DescribeFlags(group.title, *group.flags) + '\n';
  }
  return text + "Example:\n" + Indented(command.example) + '\n' +
         (command.exit_codes != nullptr ? command.exit_codes : kExitCodes);
}

std::string DescribeProgram() {
  std::string text =
      "ops-debug: finds what is wrong in GPU kernels, on a GPU or without one\n\n"
      "Usage: ops-debug COMMAND [FLAGS] ...\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string name = std::string("  ") + command.name;
    name.resize(17, ' ');
    text += name + command.summary + '\n';
  }
  text +=
      "\nOther flags:\n  --help         show this; ops-debug COMMAND --help tells more\n"
      "  --version      show the version\n\nExample:\n" +
      Indented(kCommands[0].example) + '\n' + kExitCodes;
  return text;
}

}  // namespace ops_debug::launcher
