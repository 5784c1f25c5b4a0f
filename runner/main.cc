// ops-debug-runner: runs one kernel file as an ordinary program of the CUDA driver. Every command
// of ops-debug runs "a target under the interposer"; this is the target when the user has only a
// kernel.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/status/status.h"
#include "proto/session.h"
#include "ptx/parser.h"
#include "runner/child_process.h"
#include "runner/device.h"
#include "runner/entry_choice.h"
#include "runner/options.h"
#include "runner/source_scan.h"
#include "runner/tensor_data.h"
#include "runner/text.h"
#include "runner/toolchain.h"

namespace ops_debug::runner {
namespace {

namespace fs = std::filesystem;

constexpr int kExitCudaError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitToolFailure = 3;

int Report(const absl::Status& status) {
  std::cerr << "ops-debug-runner: error: " << status.message() << std::endl;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kAborted:
      return kExitCudaError;
    default:
      return kExitToolFailure;
  }
}

absl::Status NoSuchFile(const std::string& path) {
  std::error_code ignored;
  return absl::InvalidArgumentError(StrCat("no such file: ", path,
                                           "\n  hint: the current folder is ",
                                           fs::current_path(ignored).string()));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return NoSuchFile(path);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return absl::InvalidArgumentError(
        StrCat("cannot read ", path, "\n  hint: it must be a file that you may read"));
  return text.str();
}

bool OnEmulator() {
  const char* value = std::getenv(proto::kEnvEmulator);
  return value != nullptr && std::string_view(value) == "1";
}

// One line that says what ran: the shapes are derived, so the user must be able to see them.
void PrintLaunch(const Device& device, const LaunchPlan& plan, const LaunchResult& result) {
  std::vector<std::string> arguments;
  for (const ArgumentPlan& argument : plan.arguments) {
    const std::string& name = argument.parameter.name;
    arguments.push_back(argument.is_buffer ? StrCat(name, ": ", ToString(argument.shape), " ",
                                                    argument.element.ToString())
                                           : StrCat(name, "=", argument.value_text));
  }
  auto dimensions = [](const Dimensions& d) { return StrCat(d[0], "x", d[1], "x", d[2]); };
  char duration[32];
  std::snprintf(duration, sizeof duration, "%.3f", result.duration_ms);
  std::cerr << "ops-debug-runner: " << plan.entry.name << "(" << StrJoin(arguments, ", ")
            << ") grid " << dimensions(plan.grid) << " block " << dimensions(plan.block) << " on "
            << device.name() << ": " << duration << " ms" << std::endl;
}

absl::Status SaveOutputs(const std::string& folder, const LaunchPlan& plan,
                         const LaunchResult& result) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return absl::FailedPreconditionError(StrCat("cannot make ", folder, ": ", error.message()));
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const ArgumentPlan& argument = plan.arguments[i];
    if (!argument.is_buffer || argument.is_input) continue;
    const std::string path = StrCat(folder, "/", argument.parameter.name, ".npy");
    if (absl::Status status = SaveNpy(path, argument, result.contents[i]); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

int RunKernel(Device& device, const std::string& ptx, const SourceScan& scan,
              const Options& options) {
  ptx::Result<ptx::Module> module = ptx::Parse(ptx);
  if (!module.ok()) {
    return Report(absl::FailedPreconditionError(StrCat(
        options.kernel, ": the PTX is not understood: ", module.error().ToString(),
        "\n  hint: ptxas -arch=sm_90 ", options.kernel, " tells whether the file is right")));
  }
  absl::StatusOr<Entry> entry = ChooseEntry(ReadEntries(*module), options.entry, options.kernel);
  if (!entry.ok()) return Report(entry.status());
  ApplySource(scan, &*entry);
  LaunchRequest request = options.launch;
  for (const SourceKernel& kernel : scan.kernels) {
    if (kernel.name == entry->name) ApplyLaunchComment(kernel.launch, &request);
  }
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(*entry, request);
  if (!plan.ok()) return Report(plan.status());
  absl::StatusOr<LaunchResult> result =
      device.Launch(ptx, *plan, options.seed, !options.save_outputs.empty());
  if (!result.ok()) return Report(result.status());
  PrintLaunch(device, *plan, *result);
  if (!options.save_outputs.empty()) {
    if (absl::Status status = SaveOutputs(options.save_outputs, *plan, *result); !status.ok())
      return Report(status);
  }
  return 0;
}

// A .cu file: with main() it becomes a program of its own, else its PTX is launched.
int RunSource(const Options& options) {
  absl::StatusOr<std::string> text = ReadFile(options.kernel);
  if (!text.ok()) return Report(text.status());
  absl::StatusOr<SourceScan> scan = ScanSource(*text, options.kernel);
  if (!scan.ok()) return Report(scan.status());
  absl::StatusOr<std::string> nvcc = FindNvcc();
  if (!nvcc.ok()) return Report(nvcc.status());

  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return Report(device.status());
  CompileOptions compile;
  compile.compute_capability = (*device)->compute_capability();
  compile.debug_build = options.debug_build;
  compile.emulator = OnEmulator();
  compile.extra = options.nvcc_options;

  if (!scan->has_main) {
    absl::StatusOr<std::string> ptx = CompileToPtx(*nvcc, options.kernel, compile);
    if (!ptx.ok()) {
      Report(ptx.status());
      return kExitToolFailure;
    }
    return RunKernel(**device, *ptx, *scan, options);
  }
  device->reset();  // the program has the device to itself
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return Report(folder.status());
  const std::string program = StrCat(folder->path(), "/", fs::path(options.kernel).stem().string());
  if (absl::Status status = CompileProgram(*nvcc, options.kernel, program, compile); !status.ok()) {
    Report(status);
    return kExitToolFailure;
  }
  std::vector<std::string> command = {program};
  command.insert(command.end(), options.program_arguments.begin(), options.program_arguments.end());
  absl::StatusOr<int> code = RunInPlace(command);
  return code.ok() ? *code : Report(code.status());
}

int RunPtx(const Options& options) {
  absl::StatusOr<std::string> ptx = ReadFile(options.kernel);
  if (!ptx.ok()) return Report(ptx.status());
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return Report(device.status());
  return RunKernel(**device, *ptx, SourceScan(), options);
}

int RunProgram(const Options& options) {
  std::error_code error;
  if (!fs::exists(options.kernel, error)) {
    return Report(NoSuchFile(options.kernel));
  }
  if (!fs::is_regular_file(options.kernel, error) || access(options.kernel.c_str(), X_OK) != 0) {
    return Report(absl::InvalidArgumentError(
        StrCat(options.kernel,
               " is neither a CUDA source (.cu), nor PTX (.ptx), nor a program\n  hint: give the "
               "file its ending, or make it executable")));
  }
  // A path without a slash would be looked up on PATH.
  std::vector<std::string> command = {fs::absolute(options.kernel).string()};
  command.insert(command.end(), options.program_arguments.begin(), options.program_arguments.end());
  return Report(ReplaceBy(command));
}

int Main(int argc, char** argv) {
  absl::StatusOr<Options> options = ParseOptions(argc, argv);
  if (!options.ok()) return Report(options.status());
  if (options->help) {
    std::cout << HelpText();
    return 0;
  }
  const std::string suffix = fs::path(options->kernel).extension().string();
  if (suffix == ".cu") return RunSource(*options);
  if (suffix == ".ptx") return RunPtx(*options);
  return RunProgram(*options);
}

}  // namespace
}  // namespace ops_debug::runner

int main(int argc, char** argv) { return ops_debug::runner::Main(argc, argv); }
