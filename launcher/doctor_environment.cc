// Other tools that would want the same hooks, variables that change what the driver does, and our
// own files.
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "launcher/doctor.h"
#include "launcher/probe.h"

namespace ops_debug::launcher {
namespace {

constexpr std::chrono::seconds kPatience{15};

struct VariableMeaning {
  const char* name;
  const char* only_if;  // its value; null: any
  Standing standing;
  const char* cost;
  const char* advice;
};
constexpr VariableMeaning kVariables[] = {
    {"LD_PRELOAD", nullptr, Standing::kNote,
     "other preloaded libraries stay behind ours; one that hooks the driver too sees our calls",
     ""},
    {"CUDA_INJECTION64_PATH", nullptr, Standing::kLimits,
     "another tool enters the driver; if it uses CUPTI or the Sanitizer API, kernels without PTX "
     "cannot be checked",
     "unset it for checked runs"},
    {"NVTX_INJECTION64_PATH", nullptr, Standing::kNote,
     "a tool listens to NVTX ranges; no conflict", ""},
    {"NV_COMPUTE_SANITIZER_INJECTION", nullptr, Standing::kLimits,
     "compute-sanitizer and ops-debug exclude each other in one process",
     "run one of them at a time"},
    {"CUDA_DISABLE_PTX_JIT", "1", Standing::kMissing,
     "the driver compiles no PTX: no kernel can be instrumented", "unset CUDA_DISABLE_PTX_JIT"},
    {"CUDA_FORCE_PTX_JIT", "1", Standing::kNote,
     "libraries without PTX fail to load, with ops-debug or without", ""},
    {"CUDA_CACHE_DISABLE", "1", Standing::kNote,
     "instrumented kernels are compiled anew in each run: slower starts",
     "unset CUDA_CACHE_DISABLE"},
    {"CUDA_LAUNCH_BLOCKING", "1", Standing::kNote, "launches wait for each other: slower", ""},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", Standing::kNote,
     "not needed: tensors in PyTorch's pool have bounds of their own; without the pool all is "
     "slower",
     "unset PYTORCH_NO_CUDA_MEMORY_CACHING"},
    {"CUDA_VISIBLE_DEVICES", nullptr, Standing::kNote, "programs see these GPUs only", ""},
    {"CUDA_MPS_PIPE_DIRECTORY", nullptr, Standing::kNote,
     "programs may share the GPU through MPS: --on-error trap stops all of them", ""},
};

struct ProcessMeaning {
  const char* name;  // as the kernel shows it: 15 characters
  const char* what;
  Standing standing;
  const char* cost;
  const char* advice;
};
constexpr ProcessMeaning kProcesses[] = {
    {"nv-hostengine", "DCGM", Standing::kNote,
     "it reads counters now and then; profilers may find them busy, checking is not touched", ""},
    {"dcgm-exporter", "DCGM exporter", Standing::kNote,
     "it reads counters now and then; profilers may find them busy, checking is not touched", ""},
    {"compute-sanitiz", "compute-sanitizer", Standing::kNote,
     "it slows the GPU down for everybody; do not put ops-debug and it into one process", ""},
    {"nsys", "Nsight Systems", Standing::kNote,
     "it traces some process; not the one you check, please", ""},
    {"ncu", "Nsight Compute", Standing::kNote,
     "it serialises kernels and may lock clocks: figures of time mean little now", ""},
    {"cuda-gdb", "cuda-gdb", Standing::kNote, "a GPU that is being debugged may stand still", ""},
    {"nvidia-cuda-mps", "MPS", Standing::kNote,
     "programs share the GPU through a server: --on-error trap stops all of them", ""},
};

std::set<std::string> RunningPrograms(const Machine& machine) {
  std::set<std::string> names;
  DIR* list = opendir(machine.Path("/proc").c_str());
  if (list == nullptr) return names;
  while (const dirent* entry = readdir(list)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    std::string name = machine.Read(std::string("/proc/") + entry->d_name + "/comm");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    names.insert(name);
  }
  closedir(list);
  return names;
}

// "" if the library loads in a process of its own, else why not.
std::string LoadObstacle(const Machine& machine, const std::string& library) {
  const auto load = [&library](int answer) {
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) dprintf(answer, "%s", dlerror());
  };
  const ProbeAnswer answer = Probe::OfFunction(load, machine.Limit(kPatience)).Finish();
  return answer.ok() ? answer.output : "loading it " + answer.Trouble();
}

// The emulator's driver starts and shows a device.
std::string EmulatorObstacle(const Machine& machine, const std::string& driver) {
  const auto start = [&driver](int answer) {
    void* library = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      dprintf(answer, "%s", dlerror());
      return;
    }
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0 ||
        devices == 0) {
      dprintf(answer, "it does not start");
    }
  };
  const ProbeAnswer answer = Probe::OfFunction(start, machine.Limit(kPatience)).Finish();
  return answer.ok() ? answer.output : "starting it " + answer.Trouble();
}

Observation Broken(const std::string& id, const std::string& subject, Standing standing,
                   const std::string& found, const std::string& cost) {
  return {.id = id,
          .subject = subject,
          .standing = standing,
          .found = found,
          .cost = cost,
          .advice = "build or install ops-debug again: scripts/build.sh"};
}

}  // namespace

void ExamineOtherTools(const Machine& machine, Observations& observations) {
  for (const VariableMeaning& variable : kVariables) {
    const auto found = machine.environment.find(variable.name);
    if (found == machine.environment.end()) continue;
    if (variable.only_if != nullptr && found->second != variable.only_if) continue;
    if (variable.only_if == nullptr && found->second.empty() &&
        std::string(variable.name) != "CUDA_VISIBLE_DEVICES") {
      continue;
    }
    observations.push_back({.id = "environment",
                            .subject = variable.name,
                            .standing = variable.standing,
                            .found = found->second.empty() ? "set, empty" : found->second,
                            .cost = variable.cost,
                            .advice = variable.advice,
                            .details = {{"name", variable.name}, {"value", found->second}}});
  }
  const std::set<std::string> running = RunningPrograms(machine);
  for (const ProcessMeaning& process : kProcesses) {
    const bool runs = std::any_of(running.begin(), running.end(), [&](const std::string& name) {
      return name == process.name ||
             (std::string(process.name).size() == 15 && name.rfind(process.name, 0) == 0);
    });
    if (!runs) continue;
    observations.push_back({.id = "other-tool",
                            .subject = process.what,
                            .standing = process.standing,
                            .found = "runs on this machine",
                            .cost = process.cost,
                            .advice = process.advice,
                            .details = {{"process", process.name}}});
  }
}

OwnPieces ExamineInstallation(const Machine& machine, Observations& observations) {
  const Installation& own = machine.installation;
  OwnPieces pieces;
  const std::string interposer = access(own.preload_library.c_str(), R_OK) != 0
                                     ? own.preload_library + " is missing"
                                     : LoadObstacle(machine, own.preload_library);
  // Without arguments the analyzer says what it is and exits with 2.
  const ProbeAnswer analyzer =
      Probe::OfProgram({own.analyzer}, machine.environment, machine.Limit(kPatience)).Finish();
  const bool analyzer_starts = analyzer.started && analyzer.exit_code == 2;
  pieces.interposer = interposer.empty() && analyzer_starts;
  if (pieces.interposer) {
    observations.push_back({.id = "ops-debug",
                            .subject = "ops-debug",
                            .found = own.directory + ": preload library and analyzer work",
                            .details = {{"directory", own.directory}}});
  }
  if (!interposer.empty()) {
    observations.push_back(Broken("interposer", "preload library", Standing::kMissing, interposer,
                                  "no program can be checked"));
  }
  if (!analyzer_starts) {
    observations.push_back(Broken("analyzer", "analyzer", Standing::kMissing,
                                  own.analyzer + ' ' + analyzer.Trouble(),
                                  "no program can be checked"));
  }
  const std::string driver = own.emulator_folder + "/libcuda.so.1";
  const std::string emulator = access(driver.c_str(), R_OK) != 0
                                   ? driver + " is missing"
                                   : EmulatorObstacle(machine, driver);
  pieces.emulator = emulator.empty();
  if (pieces.emulator) {
    observations.push_back({.id = "emulator", .subject = "emulator", .found = "works"});
  } else {
    observations.push_back(Broken("emulator", "emulator", Standing::kLimits, emulator,
                                  "kernels cannot run on the CPU (--device emulator)"));
  }
  if (access(own.runner.c_str(), X_OK) != 0) {
    observations.push_back(Broken("runner", "kernel runner", Standing::kLimits,
                                  own.runner + " is missing",
                                  "check-memory --kernel FILE does not work"));
  }
  if (access(own.python_folder.c_str(), R_OK) != 0) {
    observations.push_back(Broken("python-package", "Python package", Standing::kLimits,
                                  own.python_folder + " is missing",
                                  "findings in pools name no tensor's shape and no Python line"));
  }
  return pieces;
}

}  // namespace ops_debug::launcher
