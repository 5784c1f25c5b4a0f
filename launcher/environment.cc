// Variables are set here and nowhere else.
#include "launcher/environment.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "proto/session.h"

namespace ops_debug::launcher {
namespace {

void Prepend(Environment& environment, const std::string& name, const std::string& value) {
  std::string& list = environment[name];
  list = list.empty() ? value : value + ':' + list;
}

Problem Missing(const std::string& path) {
  return {path + " is missing", "build it: scripts/build.sh", kExitToolFailure};
}

}  // namespace

Environment InheritedEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

std::string PtxStoreFolder(const Environment& inherited, const std::string& asked) {
  if (asked == "none") return "";
  if (!asked.empty()) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::absolute(asked, error);
    return error ? "" : folder.string();
  }
  const auto absolute = [&](const char* name) {
    const auto found = inherited.find(name);
    return found != inherited.end() && found->second.rfind('/', 0) == 0 ? found->second
                                                                        : std::string();
  };
  if (const std::string cache = absolute("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/ops-debug/ptx";
  }
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/ops-debug/ptx";
}

std::string VisibleDevice(const std::string& visible, uint32_t index) {
  std::istringstream list(visible);
  std::string device;
  for (uint32_t i = 0; std::getline(list, device, ','); ++i) {
    if (i == index) return device;
  }
  return std::to_string(index);
}

std::variant<Environment, Problem> TargetEnvironment(
    const Environment& inherited, const Installation& installation, const RunOptions& options,
    const DeviceChoice& device, const std::string& ring_name, const std::string& replay_folder) {
  const std::string& library = installation.preload_library;
  if (access(library.c_str(), R_OK) != 0) return Missing(library);
  if (library.find_first_of(" :") != std::string::npos) {
    return Problem{"the path of ops-debug holds a space or colon: " + installation.directory,
                   "LD_PRELOAD cannot carry it; move ops-debug to another folder",
                   kExitToolFailure};
  }
  if (options.engine == "sass" && device.kind == DeviceKind::kEmulator) {
    return Problem{"--engine sass needs an NVIDIA GPU: the emulator executes PTX",
                   "leave --engine away, or choose --device gpu"};
  }
  Environment environment = inherited;
  Prepend(environment, "LD_PRELOAD", library);
  environment[proto::kEnvLibrary] = library;
  // What nothing is checked with stays away: a run without checks is to cost nothing measurable.
  const bool watches = options.checks != "none" || options.rewrite == "null";
  if (watches) {
    // The driver loads what this names into every process that initialises it: into children, too,
    // whose environment lost LD_PRELOAD. A tool that the user put there keeps its place.
    environment.try_emplace("CUDA_INJECTION64_PATH", library);
    if (access(installation.python_folder.c_str(), R_OK) == 0) {
      Prepend(environment, "PYTHONPATH", installation.python_folder);
    }
  }
  environment[proto::kEnvRing] = ring_name;
  environment[proto::kEnvChecks] = options.checks;
  environment[proto::kEnvRewrite] = options.rewrite;
  environment[proto::kEnvOnError] = options.on_error;
  if (options.quarantine_bytes) {
    environment[proto::kEnvQuarantineBytes] = std::to_string(*options.quarantine_bytes);
  }
  environment[proto::kEnvEngine] = options.engine;
  environment[proto::kEnvTensors] = options.tensors ? "1" : "0";
  // What an outer ops-debug asked for is not asked for here.
  const auto set_or_clear = [&](const char* name, const std::string& value) {
    value.empty() ? void(environment.erase(name)) : void(environment[name] = value);
  };
  const auto number = [](const std::optional<uint64_t>& value) {
    return value ? std::to_string(*value) : std::string();
  };
  set_or_clear(proto::kEnvPtxStore, PtxStoreFolder(inherited, options.ptx_store));
  set_or_clear(proto::kEnvKernelName, options.kernel_name);
  set_or_clear(proto::kEnvLaunchSkip, number(options.launch_skip));
  set_or_clear(proto::kEnvLaunchCount, number(options.launch_count));
  set_or_clear(proto::kEnvSample, number(options.sample));
  set_or_clear(proto::kEnvLeakCheck, options.leak_check ? "1" : "");
  set_or_clear(proto::kEnvReplayFolder, replay_folder);
  set_or_clear(proto::kEnvReplayMemory, replay_folder.empty() && options.capture_launch.empty()
                                            ? ""
                                            : std::to_string(options.replay_memory_bytes));
  set_or_clear(proto::kEnvCaptureLaunch, options.capture_launch);
  set_or_clear(proto::kEnvCaptureTensors, options.capture_tensors);
  set_or_clear(proto::kEnvCaptureFolder, options.capture_folder);
  set_or_clear(proto::kEnvCaptureBytes,
               options.capture_tensors.empty() ? "" : std::to_string(options.capture_bytes));
  set_or_clear(proto::kEnvRaceMemory, options.race_memory == "all" ? "" : options.race_memory);
  set_or_clear(proto::kEnvPrecisionTrace, options.trace_conversions ? "1" : "");
  if (options.schedule_seed)
    environment[proto::kEnvScheduleSeed] = std::to_string(*options.schedule_seed);
  if (device.kind == DeviceKind::kEmulator) {
    const std::string driver = installation.emulator_folder + "/libcuda.so.1";
    if (access(driver.c_str(), R_OK) != 0) return Missing(driver);
    Prepend(environment, "LD_LIBRARY_PATH", installation.emulator_folder);
    // Packages such as PyTorch's bring NVIDIA's run-time along and name its folder in their RPATH,
    // which comes before LD_LIBRARY_PATH. A library of the same name that is loaded already comes
    // before both. Behind the interposer, before what the user preloads.
    std::string preload = library;
    for (const char* name : {"/libcudart.so.13", "/libcudart.so.12"}) {
      const std::string runtime = installation.emulator_folder + name;
      if (access(runtime.c_str(), R_OK) == 0) preload += ':' + runtime;
    }
    environment["LD_PRELOAD"] = preload + environment["LD_PRELOAD"].substr(library.size());
    environment.insert_or_assign(proto::kEnvEmulator, "1");
    if (!options.emulate.empty()) environment[proto::kEnvEmulate] = options.emulate;
  } else if (device.index) {
    environment["CUDA_VISIBLE_DEVICES"] =
        VisibleDevice(environment["CUDA_VISIBLE_DEVICES"], *device.index);
  }
  return environment;
}

}  // namespace ops_debug::launcher
