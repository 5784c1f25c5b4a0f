// Variables are set here and nowhere else.
#include "launcher/environment.h"

#include <unistd.h>

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

std::string VisibleDevice(const std::string& visible, uint32_t index) {
  std::istringstream list(visible);
  std::string device;
  for (uint32_t i = 0; std::getline(list, device, ','); ++i) {
    if (i == index) return device;
  }
  return std::to_string(index);
}

std::variant<Environment, Problem> TargetEnvironment(const Environment& inherited,
                                                     const Installation& installation,
                                                     const RunOptions& options,
                                                     const DeviceChoice& device,
                                                     const std::string& ring_name) {
  const std::string& library = installation.preload_library;
  if (access(library.c_str(), R_OK) != 0) return Missing(library);
  if (library.find_first_of(" :") != std::string::npos) {
    return Problem{"the path of ops-debug holds a space or colon: " + installation.directory,
                   "LD_PRELOAD cannot carry it; move ops-debug to another folder",
                   kExitToolFailure};
  }
  Environment environment = inherited;
  Prepend(environment, "LD_PRELOAD", library);
  environment[proto::kEnvRing] = ring_name;
  environment[proto::kEnvChecks] = options.checks;
  environment[proto::kEnvRewrite] = options.rewrite;
  environment[proto::kEnvOnError] = options.on_error;
  if (options.quarantine_bytes) {
    environment[proto::kEnvQuarantineBytes] = std::to_string(*options.quarantine_bytes);
  }
  if (options.schedule_seed)
    environment[proto::kEnvScheduleSeed] = std::to_string(*options.schedule_seed);
  if (device.kind == DeviceKind::kEmulator) {
    const std::string driver = installation.emulator_folder + "/libcuda.so.1";
    if (access(driver.c_str(), R_OK) != 0) return Missing(driver);
    Prepend(environment, "LD_LIBRARY_PATH", installation.emulator_folder);
    environment.insert_or_assign(proto::kEnvEmulator, "1");
    if (!options.emulate.empty()) environment[proto::kEnvEmulate] = options.emulate;
  } else if (device.index) {
    environment["CUDA_VISIBLE_DEVICES"] =
        VisibleDevice(environment["CUDA_VISIBLE_DEVICES"], *device.index);
  }
  return environment;
}

}  // namespace ops_debug::launcher
