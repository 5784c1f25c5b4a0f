// ops-debug-runner: runs one kernel file as an ordinary program of the CUDA driver. Every command
// of ops-debug runs "a target under the interposer"; this is the target when the user has only a
// kernel.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "absl/status/status.h"
#include "proto/provider.h"
#include "runner/child_process.h"
#include "runner/device.h"
#include "runner/kernel_file.h"
#include "runner/options.h"
#include "runner/provider.h"
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
    if (!argument.is_buffer || !argument.is_output) continue;
    const std::string path = StrCat(folder, "/", argument.parameter.name, ".npy");
    if (absl::Status status = SaveNpy(path, argument, result.contents[i]); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

int RunKernel(Device& device, const KernelFile& file, const Options& options) {
  absl::StatusOr<Entry> entry = EntryOf(file, options.entry);
  if (!entry.ok()) return Report(entry.status());
  LaunchRequest request = options.launch;
  ApplyComments(file, *entry, &request);
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(*entry, request);
  if (!plan.ok()) return Report(plan.status());
  absl::StatusOr<LaunchResult> result =
      device.Launch(file.ptx, *plan, options.seed, !options.save_outputs.empty());
  if (!result.ok()) return Report(result.status());
  PrintLaunch(device, *plan, *result);
  if (!options.save_outputs.empty()) {
    if (absl::Status status = SaveOutputs(options.save_outputs, *plan, *result); !status.ok())
      return Report(status);
  }
  return 0;
}

// A .cu file with main() becomes a program of its own.
int RunBuiltProgram(const Options& options, const CompileOptions& compile) {
  absl::StatusOr<std::string> nvcc = FindNvcc();
  if (!nvcc.ok()) return Report(nvcc.status());
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

int RunKernelFile(const Options& options) {
  absl::StatusOr<SourceScan> scan = ScanFile(options.kernel);
  if (!scan.ok()) return Report(scan.status());
  if (IsSource(options.kernel)) {  // before a device is asked for: the plainer message comes first
    if (absl::StatusOr<std::string> nvcc = FindNvcc(); !nvcc.ok()) return Report(nvcc.status());
  }
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return Report(device.status());
  const CompileOptions compile = CompileOptionsFor(**device, options);
  if (scan->has_main) {
    device->reset();  // the program has the device to itself
    return RunBuiltProgram(options, compile);
  }
  absl::StatusOr<KernelFile> file = LoadKernelFile(options.kernel, *std::move(scan), compile);
  if (!file.ok()) {
    const int code = Report(file.status());
    return file.status().code() == absl::StatusCode::kAborted ? kExitToolFailure : code;
  }
  return RunKernel(**device, *file, options);
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
  if (options->provider) {
    absl::Status status = ServeProvider(*options);
    if (status.code() != absl::StatusCode::kUnimplemented) return status.ok() ? 0 : Report(status);
    std::cerr << status.message() << std::endl;
    return proto::kProviderCannot;
  }
  const std::string suffix = fs::path(options->kernel).extension().string();
  if (suffix == ".cu" || suffix == ".ptx") return RunKernelFile(*options);
  return RunProgram(*options);
}

}  // namespace
}  // namespace ops_debug::runner

int main(int argc, char** argv) { return ops_debug::runner::Main(argc, argv); }
