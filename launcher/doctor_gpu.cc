// Driver and devices, asked in a child process: what it calls is NVIDIA's code in an unknown state.
// The decisive question is whether the driver compiles PTX, because that is what checking rests on;
// in containers its compiler (libnvidia-ptxjitcompiler) is often forgotten.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "launcher/doctor.h"
#include "launcher/probe.h"

namespace ops_debug::launcher {
namespace {

constexpr std::chrono::seconds kPatience{30};
constexpr char kPtx[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry ops_debug_doctor() { ret; }\n";
// Values of CUdevice_attribute (cuda.h); the numbers are part of the driver's binary interface.
constexpr int kComputeMode = 20, kMajor = 75, kMinor = 76;

template <class Function>
Function Symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

[[gnu::format(printf, 2, 3)]] void Say(int answer, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (size > 0) dprintf(answer, "%s", text);
}

void AskManagementLibrary(int answer) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return;
  const auto init = Symbol<int (*)()>(nvml, "nvmlInit_v2");
  const auto version = Symbol<int (*)(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  const auto count = Symbol<int (*)(unsigned*)>(nvml, "nvmlDeviceGetCount_v2");
  const auto device = Symbol<int (*)(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  const auto mig = Symbol<int (*)(void*, unsigned*, unsigned*)>(nvml, "nvmlDeviceGetMigMode");
  char text[128] = "";
  unsigned devices = 0, mig_devices = 0;
  if (init == nullptr || init() != 0) return;
  if (version != nullptr && version(text, sizeof(text)) == 0) Say(answer, "driver\t%s\n", text);
  if (count == nullptr || device == nullptr || mig == nullptr || count(&devices) != 0) return;
  for (unsigned i = 0; i < devices; ++i) {
    void* handle = nullptr;
    unsigned current = 0, pending = 0;
    if (device(i, &handle) == 0 && mig(handle, &current, &pending) == 0) mig_devices += current;
  }
  Say(answer, "mig\t%u\n", mig_devices);
}

void AskDriver(int answer) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    Say(answer, "absent\t%s\n", dlerror());
    return;
  }
  link_map* map = nullptr;
  if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0) Say(answer, "path\t%s\n", map->l_name);
  const auto init = Symbol<int (*)(unsigned)>(driver, "cuInit");
  const auto get_version = Symbol<int (*)(int*)>(driver, "cuDriverGetVersion");
  const auto get_count = Symbol<int (*)(int*)>(driver, "cuDeviceGetCount");
  const auto get_device = Symbol<int (*)(int*, int)>(driver, "cuDeviceGet");
  const auto get_name = Symbol<int (*)(char*, int, int)>(driver, "cuDeviceGetName");
  const auto get_attribute = Symbol<int (*)(int*, int, int)>(driver, "cuDeviceGetAttribute");
  const auto get_memory = Symbol<int (*)(size_t*, int)>(driver, "cuDeviceTotalMem_v2");
  const auto error_name = Symbol<int (*)(int, const char**)>(driver, "cuGetErrorName");
  const auto retain = Symbol<int (*)(void**, int)>(driver, "cuDevicePrimaryCtxRetain");
  const auto release = Symbol<int (*)(int)>(driver, "cuDevicePrimaryCtxRelease_v2");
  const auto set_current = Symbol<int (*)(void*)>(driver, "cuCtxSetCurrent");
  const auto load = Symbol<int (*)(void**, const void*)>(driver, "cuModuleLoadData");
  for (const void* symbol :
       {reinterpret_cast<void*>(init), reinterpret_cast<void*>(get_version),
        reinterpret_cast<void*>(get_count), reinterpret_cast<void*>(get_device),
        reinterpret_cast<void*>(get_name), reinterpret_cast<void*>(get_attribute),
        reinterpret_cast<void*>(get_memory), reinterpret_cast<void*>(retain),
        reinterpret_cast<void*>(release), reinterpret_cast<void*>(set_current),
        reinterpret_cast<void*>(load)}) {
    if (symbol != nullptr) continue;
    Say(answer, "absent\tit lacks functions that every driver since CUDA 7 has\n");
    return;
  }
  const auto name_of = [&](int error) {
    const char* name = nullptr;
    return error_name != nullptr && error_name(error, &name) == 0 && name != nullptr ? name
                                                                                     : "error";
  };
  int version = 0;
  if (get_version(&version) == 0) Say(answer, "version\t%d\n", version);
  const int started = init(0);
  Say(answer, "init\t%d\t%s\n", started, started == 0 ? "" : name_of(started));
  if (started != 0) return;
  AskManagementLibrary(answer);
  int devices = 0;
  get_count(&devices);
  for (int i = 0; i < devices; ++i) {
    int device = 0, major = 0, minor = 0, mode = 0;
    size_t memory = 0;
    char name[128] = "";
    if (get_device(&device, i) != 0) continue;
    get_name(name, sizeof(name) - 1, device);
    for (char* c = name; *c != '\0'; ++c) {
      if (static_cast<unsigned char>(*c) < ' ') *c = ' ';
    }
    get_attribute(&major, kMajor, device);
    get_attribute(&minor, kMinor, device);
    get_attribute(&mode, kComputeMode, device);
    get_memory(&memory, device);
    Say(answer, "device\t%d\t%s\t%d.%d\t%d\t%zu\n", i, name, major, minor, mode, memory);
    void* context = nullptr;
    void* module = nullptr;
    int fault = retain(&context, device);
    const char* step = "context";
    if (fault == 0) fault = set_current(context);
    if (fault == 0) {
      step = "compile";
      fault = load(&module, kPtx);
    }
    Say(answer, "kernel\t%d\t%d\t%s\t%s\n", i, fault, fault == 0 ? "" : name_of(fault), step);
    if (context != nullptr) release(device);
  }
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  fields.resize(6);
  return fields;
}

struct Device {
  std::string index, name, capability, kernel_error, failed_step;
  int mode = 0;
  uint64_t memory_bytes = 0;
  bool loads_kernel = false;
};

struct DriverFacts {
  std::string absent, path, driver, init_error;
  int version = 0;
  bool started = false;
  int mig_devices = 0;
  std::vector<Device> devices;
};

DriverFacts Parse(const std::string& answer) {
  DriverFacts facts;
  std::istringstream in(answer);
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> fields = Fields(line);
    const std::string& what = fields[0];
    if (what == "absent") facts.absent = fields[1];
    if (what == "path") facts.path = fields[1];
    if (what == "driver") facts.driver = fields[1];
    if (what == "version") facts.version = std::atoi(fields[1].c_str());
    if (what == "mig") facts.mig_devices = std::atoi(fields[1].c_str());
    if (what == "init") {
      facts.started = fields[1] == "0";
      facts.init_error = fields[2] + " (" + fields[1] + ")";
    }
    if (what == "device") {
      facts.devices.push_back({.index = fields[1],
                               .name = fields[2],
                               .capability = fields[3],
                               .mode = std::atoi(fields[4].c_str()),
                               .memory_bytes = std::strtoull(fields[5].c_str(), nullptr, 10)});
    }
    if (what == "kernel" && !facts.devices.empty()) {
      Device& device = facts.devices.back();
      device.loads_kernel = fields[2] == "0";
      device.kernel_error = fields[3] + " (" + fields[2] + ")";
      device.failed_step = fields[4];
    }
  }
  return facts;
}

std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

// "580.159.03" out of the kernel module's own words; empty if it is not loaded.
std::string KernelModuleVersion(const Machine& machine) {
  std::istringstream words(machine.Read("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    if (word.size() > 3 && word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

constexpr char kNoGpu[] = "kernels cannot be checked on a GPU; the emulator runs them on the CPU";

Observation Examine(const Device& device) {
  Observation gpu{.id = "gpu", .subject = "GPU " + device.index};
  gpu.found = device.name + ", compute capability " + device.capability + ", " +
              std::to_string(device.memory_bytes >> 30) + " GiB";
  gpu.details = {{"name", device.name},
                 {"compute_capability", device.capability},
                 {"memory_bytes", std::to_string(device.memory_bytes)},
                 {"compute_mode", std::to_string(device.mode)}};
  if (!device.loads_kernel && device.failed_step == "compile") {
    gpu.standing = Standing::kMissing;
    gpu.found += "; the driver cannot compile PTX: " + device.kernel_error;
    gpu.cost = "no kernel can be instrumented";
    gpu.advice =
        "install the driver's PTX compiler (libnvidia-ptxjitcompiler.so.1; in a container: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility) and unset CUDA_DISABLE_PTX_JIT";
  } else if (!device.loads_kernel) {
    gpu.standing = Standing::kMissing;
    gpu.found += "; no context can be made: " + device.kernel_error;
    gpu.cost = "no program can use this GPU now";
    gpu.advice = device.mode == 3 ? "it is in exclusive mode and in use: end the other process, or "
                                    "nvidia-smi -c DEFAULT"
                 : device.mode == 2 ? "it is in prohibited mode: nvidia-smi -c DEFAULT"
                                    : "is its memory full? nvidia-smi shows who uses it";
  } else if (device.mode == 3) {
    gpu.standing = Standing::kNote;
    gpu.found += "; exclusive mode";
    gpu.cost = "one process at a time: runs with several processes on it fail, with us or without";
    gpu.advice = "nvidia-smi -c DEFAULT";
  }
  return gpu;
}

}  // namespace

GpuAnswer ExamineGpu(const Machine& machine, Observations& observations) {
  Observation driver{.id = "driver", .subject = "driver"};
  const std::string module_version = KernelModuleVersion(machine);
  GpuAnswer answer;
  const bool device_files = machine.Has("/dev/nvidiactl") || machine.Has("/dev/dxg");
  const ProbeAnswer probe = Probe::OfFunction(AskDriver, machine.Limit(kPatience)).Finish();
  const DriverFacts facts = Parse(probe.output);
  answer.cuda_version = facts.version;
  driver.details = {{"library", facts.path},
                    {"cuda_version", facts.version == 0 ? "" : CudaVersion(facts.version)},
                    {"kernel_module", module_version}};
  const std::string name = (facts.driver.empty() ? module_version : facts.driver);
  const std::string library =
      facts.path + (facts.version == 0 ? "" : " (CUDA " + CudaVersion(facts.version) + ")");
  const auto missing = [&](const std::string& found, const std::string& advice) {
    driver.standing = Standing::kMissing;
    driver.found = found;
    driver.cost = kNoGpu;
    driver.advice = advice;
    observations.push_back(driver);
    return answer;
  };
  if (!probe.ok()) {
    return missing(library + (library.empty() ? "it " : " ") + probe.Trouble(),
                   "does nvidia-smi work? Is another driver's libcuda.so.1 in the library path?");
  }
  if (!facts.absent.empty()) {
    return missing("no driver: " + facts.absent,
                   device_files ? "the kernel module is there: install the matching libcuda (in a "
                                  "container: docker run --gpus all)"
                                : "nothing to do on a machine without an NVIDIA GPU: "
                                  "--device emulator is chosen by itself");
  }
  if (!facts.started) {
    return missing(library + " does not start: " + facts.init_error,
                   device_files ? "does the driver library match the kernel module " +
                                      module_version + "? nvidia-smi tells"
                                : "is there a GPU, and may this container see it? (--gpus all)");
  }
  driver.found = name + (name.empty() ? "" : ", ") + library;
  driver.details["version"] = name;
  if (!module_version.empty() && !facts.driver.empty() && module_version != facts.driver) {
    driver.standing = Standing::kNote;
    driver.found += "; the kernel module is " + module_version;
  }
  observations.push_back(driver);
  if (facts.devices.empty()) {
    observations.push_back({.id = "gpu",
                            .subject = "GPU",
                            .standing = Standing::kMissing,
                            .found = "the driver shows none",
                            .cost = kNoGpu,
                            .advice = "is CUDA_VISIBLE_DEVICES empty or wrong?"});
  }
  for (const Device& device : facts.devices) {
    observations.push_back(Examine(device));
    answer.usable |= device.loads_kernel;
  }
  // One broken GPU beside a good one limits; it does not stop the work.
  for (Observation& observation : observations) {
    if (observation.id == "gpu" && observation.standing == Standing::kMissing && answer.usable) {
      observation.standing = Standing::kLimits;
    }
  }
  if (facts.mig_devices > 0) {
    observations.push_back({.id = "mig",
                            .subject = "MIG",
                            .standing = Standing::kNote,
                            .found = "on, on " + std::to_string(facts.mig_devices) + " GPUs",
                            .cost = "a process sees one instance; its memory is what counts",
                            .advice = ""});
  }
  return answer;
}

}  // namespace ops_debug::launcher
