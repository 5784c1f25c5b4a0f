// One table of tools (other_tools.h). What is in memory but does nothing, such as the libcupti that
// PyTorch is linked with, is not named; only what a tool's own launcher brings in.
#include "interposer/other_tools.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interposer/dynamic_linker.h"
#include "interposer/event_sender.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

constexpr char kOneSubscriber[] =
    "NVIDIA's tools interfaces serve one client at a time: kernels that have no PTX may stay "
    "unchecked (the SASS engine needs the Sanitizer interface); run the tools one after another";
constexpr char kTimes[] =
    "its times include ours: kernels are checked while it measures; use --check none, or run the "
    "tools one after another";
constexpr char kHostOnly[] = "it watches host code only and works beside ops-debug";

struct Tool {
  const char* library;  // how the file name of a loaded object begins
  const char* name;
  const char* cost;
};
constexpr Tool kTools[] = {
    {"libsanitizer-collection.so", "compute-sanitizer", kOneSubscriber},
    {"libToolsInjection", "Nsight Systems", kTimes},
    {"libcuda-injection.so", "Nsight Compute", kOneSubscriber},
    {"libaccinj64.so", "nvprof", kTimes},
    {"libcudbg", "a debugger of CUDA code", kOneSubscriber},
    {"libasan.so", "AddressSanitizer", kHostOnly},
    {"libclang_rt.asan", "AddressSanitizer", kHostOnly},
    {"libtsan.so", "ThreadSanitizer", kHostOnly},
    {"libnvbit", "NVBit", kOneSubscriber},
    {"libdcgm.so", "DCGM", kTimes},
};

// Variables that a tool's launcher leaves in the environment of its target.
constexpr Tool kVariables[] = {
    {"NV_SANITIZER_INJECTION_PORT_BASE", "compute-sanitizer", kOneSubscriber},
    {"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute", kOneSubscriber},
    {"NSYS_PROFILING_SESSION_ID", "Nsight Systems", kTimes},
    {"QUADD_INJECTION_PROXY", "Nsight Systems", kTimes},
    {"KINETO_USE_DAEMON", "the PyTorch profiler's daemon mode (Kineto)", kTimes},
    {"CUPTI_ACTIVITY_CONFIG", "a CUPTI client", kTimes},
};

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

void Tell(const std::string& what, const std::string& cost) {
  SendOnce({.severity = proto_enums::Severity::kNote,
            .text = what + " is in the process, too",
            .hint = cost});
}

std::vector<std::string> LoadedObjects() {
  std::vector<std::string> objects;
  VisitObjects(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &objects);
  return objects;
}

// Of the process that traces this one; empty if none does.
std::string TracerName() {
  FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return {};
  int tracer = 0;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "TracerPid: %d", &tracer) == 1) break;
  }
  std::fclose(file);
  if (tracer == 0) return {};
  std::string name;
  file = std::fopen(("/proc/" + std::to_string(tracer) + "/comm").c_str(), "re");
  if (file != nullptr) {
    if (std::fgets(line, sizeof(line), file) != nullptr)
      name.assign(line, std::strcspn(line, "\n"));
    std::fclose(file);
  }
  return name.empty() ? "process " + std::to_string(tracer) : name;
}

// Libraries of LD_PRELOAD that are none of ours and of no tool named above.
void ReportPreloaded(const std::vector<std::string>& objects, std::set<std::string>& told) {
  const char* const value = std::getenv("LD_PRELOAD");
  if (value == nullptr) return;
  Dl_info self{};
  const bool found = dladdr(reinterpret_cast<const void*>(&ReportOtherTools), &self) != 0;
  const std::string own(found ? FileName(self.dli_fname) : std::string_view());
  std::string list = value;
  std::replace(list.begin(), list.end(), ' ', ':');
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    const std::string path = list.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty() || FileName(path) == own) continue;
    const std::string name(FileName(path));
    // The launcher puts the emulator's run-time there.
    if (Options().emulated && name.starts_with("libcudart.so.")) continue;
    const bool loaded = std::any_of(objects.begin(), objects.end(), [&](const std::string& object) {
      return FileName(object) == name;
    });
    const bool known = std::any_of(std::begin(kTools), std::end(kTools), [&](const Tool& tool) {
      return name.rfind(tool.library, 0) == 0;
    });
    if (loaded && !known && told.insert(name).second) {
      Tell(name + " (LD_PRELOAD)",
           "if it replaces driver functions, too, calls reach ops-debug first");
    }
  }
}

}  // namespace

void ReportOtherTools() {
  const std::vector<std::string> objects = LoadedObjects();
  std::set<std::string> told;
  for (const std::string& object : objects) {
    const std::string_view file = FileName(object);
    for (const Tool& tool : kTools) {
      if (file.starts_with(tool.library) && told.insert(tool.name).second) {
        Tell(tool.name, tool.cost);
      }
    }
  }
  for (const Tool& variable : kVariables) {
    if (std::getenv(variable.library) != nullptr && told.insert(variable.name).second) {
      Tell(variable.name, variable.cost);
    }
  }
  ReportPreloaded(objects, told);
  const char* const injection = std::getenv("CUDA_INJECTION64_PATH");
  if (injection != nullptr && *injection != '\0' && injection != Options().library) {
    Tell(std::string(FileName(injection)) + " (CUDA_INJECTION64_PATH)",
         "the variable was set before, so ops-debug left it: children that lose LD_PRELOAD are "
         "not checked");
  }
  const std::string tracer = TracerName();
  if (!tracer.empty()) {
    const bool cuda_debugger = tracer.find("cuda-gdb") != std::string::npos;
    Tell(tracer + " (it traces this process)", cuda_debugger ? kOneSubscriber : kHostOnly);
  }
}

}  // namespace ops_debug::interposer
