// What the operating system grants: shared memory, limits, ptrace, folders, container.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "launcher/doctor.h"
#include "proto/ring_room.h"

namespace ops_debug::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRingBytes = 8 << 20;  // what a run asks for
constexpr std::chrono::seconds kWalkPatience{2};

std::string Mebibytes(uint64_t bytes) {
  return bytes >= uint64_t{10} << 30 ? std::to_string(bytes >> 30) + " GiB"
         : bytes >= 1 << 20          ? std::to_string(bytes >> 20) + " MiB"
                                     : std::to_string(bytes >> 10) + " KiB";
}

void ExamineSharedMemory(const Machine& machine, Observations& observations) {
  Observation memory{.id = "shared-memory", .subject = "/dev/shm"};
  struct statvfs system {};
  if (statvfs(machine.Path("/dev/shm").c_str(), &system) != 0) {
    memory.standing = Standing::kNote;
    memory.found = "not there: " + std::string(strerror(errno));
  } else {
    const uint64_t size = uint64_t{system.f_blocks} * system.f_frsize;
    const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
    memory.found = Mebibytes(size) + ", " + Mebibytes(free) + " free";
    memory.details = {{"size_bytes", std::to_string(size)}, {"free_bytes", std::to_string(free)}};
    if (access(machine.Path("/dev/shm").c_str(), W_OK) != 0) {
      memory.standing = Standing::kNote;
      memory.found += ", not writable";
    } else if (free < 2 * kRingBytes) {
      memory.standing = Standing::kNote;
    }
  }
  // The proof of the pudding: the ring of a run, as a run makes it.
  std::string note, error;
  const auto ring = proto::CreateRingWhereRoom("ops-debug-" + std::to_string(getpid()) + "-doctor",
                                               kRingBytes, &note, &error);
  if (ring == nullptr) {
    memory.standing = Standing::kMissing;
    memory.found += "; " + error;
    memory.cost = "no run can start: events have no way to the analyzer";
    memory.advice = "mount -t tmpfs -o size=64m tmpfs /dev/shm; in a container: --shm-size=64m";
  } else if (!note.empty() || memory.standing != Standing::kGood) {
    memory.standing = Standing::kLimits;
    memory.cost =
        note.empty() ? "several runs at a time use nameless memory or smaller rings" : note;
    memory.advice = "in a container: docker run --shm-size=64m";
  }
  observations.push_back(memory);
}

struct Limit {
  const char* id;
  const char* subject;
  decltype(RLIMIT_AS) resource;
  rlim_t enough;
  bool in_bytes;
  const char* cost;
  const char* advice;
};

const Limit kLimits[] = {
    {"limit-address-space", "address space", RLIMIT_AS, RLIM_INFINITY, true,
     "reserving shadow memory and mapping the event ring can fail; what is then unchecked is said",
     "ulimit -v unlimited"},
    {"limit-open-files", "open files", RLIMIT_NOFILE, 256, false,
     "programs that load many libraries run out of file numbers sooner", "ulimit -n 1024"},
    {"limit-locked-memory", "locked memory", RLIMIT_MEMLOCK, 64 << 10, true,
     "the driver's pinned memory is not bound by it, but some drivers refuse to start at 0",
     "ulimit -l unlimited"},
    {"limit-file-size", "file size", RLIMIT_FSIZE, uint64_t{1} << 30, true,
     "shared memory counts as a file: the event ring gets smaller, and logs end there",
     "ulimit -f unlimited"},
};

void ExamineLimits(Observations& observations) {
  for (const Limit& limit : kLimits) {
    rlimit value{};
    if (getrlimit(limit.resource, &value) != 0) continue;
    const bool unlimited = value.rlim_cur == RLIM_INFINITY;
    Observation observation{.id = limit.id, .subject = std::string("limit: ") + limit.subject};
    observation.found = unlimited        ? "none"
                        : limit.in_bytes ? Mebibytes(value.rlim_cur)
                                         : std::to_string(value.rlim_cur);
    observation.details = {{"limit", unlimited ? "unlimited" : std::to_string(value.rlim_cur)}};
    if (!unlimited && value.rlim_cur < limit.enough) {
      observation.standing = Standing::kLimits;
      observation.cost = limit.cost;
      observation.advice = limit.advice;
    }
    observations.push_back(observation);
  }
}

void ExaminePtrace(const Machine& machine, Observations& observations) {
  std::string scope = machine.Read("/proc/sys/kernel/yama/ptrace_scope");
  while (!scope.empty() && scope.back() == '\n') scope.pop_back();
  Observation ptrace{
      .id = "ptrace", .subject = "ptrace", .details = {{"yama_ptrace_scope", scope}}};
  if (scope.empty() || scope == "0") {
    ptrace.found = scope.empty() ? "not restricted (no Yama)" : "not restricted";
  } else {
    ptrace.standing = Standing::kNote;
    ptrace.found = scope == "1"   ? "children only (Yama scope 1)"
                   : scope == "2" ? "administrators only (Yama scope 2)"
                                  : "off (Yama scope " + scope + ")";
    ptrace.cost = "none: ops-debug starts its targets. Debuggers cannot attach to a running one";
    ptrace.advice = scope == "3" ? "" : "root: sysctl kernel.yama.ptrace_scope=0";
  }
  observations.push_back(ptrace);
}

// Whether a file can be made in `folder`, or in the nearest folder above it that exists.
std::string WriteObstacle(const std::string& folder) {
  fs::path place = folder;
  std::error_code error;
  while (!fs::exists(place, error) && place.has_parent_path() && place != place.parent_path()) {
    place = place.parent_path();
  }
  if (!fs::is_directory(place, error)) return place.string() + " is not a folder";
  std::string name = (place / ".ops-debug-doctor-XXXXXX").string();
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return place.string() + ": " + strerror(errno);
  close(file);
  unlink(name.c_str());
  return "";
}

// Bytes and files below `folder`; stops counting when time is up.
std::string SizeOf(const std::string& folder, std::map<std::string, std::string>& details) {
  const auto deadline = std::chrono::steady_clock::now() + kWalkPatience;
  uint64_t bytes = 0, files = 0;
  bool whole = true;
  std::error_code error;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::skip_permission_denied, error),
       end;
       at != end && whole; at.increment(error)) {
    if (error) break;
    if (!at->is_regular_file(error)) continue;
    ++files;
    bytes += at->file_size(error);
    whole = std::chrono::steady_clock::now() < deadline;
  }
  details["bytes"] = std::to_string(bytes);
  details["files"] = std::to_string(files);
  return (whole ? "" : "more than ") + Mebibytes(bytes) + " in " + std::to_string(files) + " files";
}

void ExamineStore(const Machine& machine, Observations& observations) {
  Observation store{.id = "ptx-store", .subject = "PTX store"};
  const std::string folder = PtxStoreFolder(machine.environment, "");
  constexpr char kCost[] =
      "PTX is remembered within a run only: kernels that a later run takes from a framework's "
      "cache "
      "as cubins have to be checked by the second engine";
  if (folder.empty()) {
    store.standing = Standing::kLimits;
    store.found = "no folder: neither XDG_CACHE_HOME nor HOME is set";
    store.cost = kCost;
    store.advice = "--ptx-store FOLDER";
  } else if (const std::string obstacle = WriteObstacle(folder); !obstacle.empty()) {
    store.standing = Standing::kLimits;
    store.found = folder + " cannot be written: " + obstacle;
    store.cost = kCost;
    store.advice = "--ptx-store FOLDER, in a place that can be written";
  } else {
    std::error_code error;
    store.found = folder + (fs::exists(folder, error) ? ", " + SizeOf(folder, store.details)
                                                      : ", not made yet");
  }
  store.details["path"] = folder;
  observations.push_back(store);

  Observation temporary{.id = "temporary-folder", .subject = "temporary files"};
  std::string place = machine.Variable("TMPDIR");
  if (place.empty()) place = "/tmp";
  temporary.found = place;
  if (const std::string obstacle = WriteObstacle(place); !obstacle.empty()) {
    temporary.standing = Standing::kLimits;
    temporary.found = obstacle;
    temporary.cost = "--kernel FILE.cu and --schedules need it";
    temporary.advice = "set TMPDIR to a folder that can be written";
  }
  observations.push_back(temporary);
}

void ExamineContainer(const Machine& machine, Observations& observations) {
  std::string kind;
  if (machine.Has("/.dockerenv")) kind = "Docker";
  if (machine.Has("/run/.containerenv")) kind = "Podman";
  if (!machine.Variable("KUBERNETES_SERVICE_HOST").empty()) kind = "Kubernetes";
  if (kind.empty() && !machine.Variable("container").empty()) kind = machine.Variable("container");
  if (kind.empty()) return;
  Observation container{.id = "container", .subject = "container", .found = kind};
  container.details = {{"kind", kind}};
  std::string memory = machine.Read("/sys/fs/cgroup/memory.max");
  while (!memory.empty() && memory.back() == '\n') memory.pop_back();
  if (!memory.empty() && memory != "max") {
    container.found += ", " + Mebibytes(std::strtoull(memory.c_str(), nullptr, 10)) + " of memory";
    container.details["memory_bytes"] = memory;
  }
  const std::string capabilities = machine.Variable("NVIDIA_DRIVER_CAPABILITIES");
  if (!capabilities.empty() && capabilities.find("compute") == std::string::npos &&
      capabilities.find("all") == std::string::npos) {
    container.standing = Standing::kLimits;
    container.found += ", NVIDIA_DRIVER_CAPABILITIES=" + capabilities;
    container.cost = "the container has no CUDA driver";
    container.advice = "NVIDIA_DRIVER_CAPABILITIES=compute,utility";
  }
  observations.push_back(container);
}

}  // namespace

void ExamineSystem(const Machine& machine, Observations& observations) {
  ExamineSharedMemory(machine, observations);
  ExamineLimits(observations);
  ExaminePtrace(machine, observations);
  ExamineStore(machine, observations);
  ExamineContainer(machine, observations);
}

}  // namespace ops_debug::launcher
