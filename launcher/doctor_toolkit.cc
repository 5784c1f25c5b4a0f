// The toolkit's programs, and NVIDIA's libraries that a second engine and hardware counters rest
// on. Libraries are looked for where toolkits, distributions and Python packages put them; they are
// not loaded.
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "launcher/doctor.h"
#include "launcher/probe.h"
#include "proto/session.h"

namespace ops_debug::launcher {
namespace {

constexpr std::chrono::seconds kPatience{10};

// The folder's entries that begin with `prefix`, sorted, as full paths without the root.
std::vector<std::string> Entries(const Machine& machine, const std::string& folder,
                                 const std::string& prefix) {
  std::vector<std::string> entries;
  DIR* list = opendir(machine.Path(folder).c_str());
  if (list == nullptr) return entries;
  while (const dirent* entry = readdir(list)) {
    const std::string name = entry->d_name;
    if (name.rfind(prefix, 0) == 0 && name != "." && name != "..") {
      entries.push_back(folder + '/' + name);
    }
  }
  closedir(list);
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Roots of toolkits, the likeliest first.
std::vector<std::string> Toolkits(const Machine& machine) {
  std::vector<std::string> toolkits;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string home = machine.Variable(name); !home.empty()) toolkits.push_back(home);
  }
  toolkits.push_back("/usr/local/cuda");
  std::vector<std::string> numbered = Entries(machine, "/usr/local", "cuda-");
  toolkits.insert(toolkits.end(), numbered.rbegin(), numbered.rend());
  return toolkits;
}

std::string FindTool(const Machine& machine, const std::string& name) {
  const std::string found = machine.FindProgram(name);
  if (!found.empty()) return found;
  for (const std::string& toolkit : Toolkits(machine)) {
    const std::string path = machine.Path(toolkit + "/bin/" + name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// "13.0.48" out of "..., release 13.0, V13.0.48".
std::string ReleaseIn(const std::string& text) {
  const size_t release = text.find("release ");
  const size_t v = release == std::string::npos ? release : text.find(", V", release);
  if (v == std::string::npos) return "";
  const size_t end = text.find_first_not_of("0123456789.", v + 3);
  return text.substr(v + 3, end == std::string::npos ? end : end - v - 3);
}

struct Tool {
  const char* name;
  const char* cost;
  const char* advice;
};
constexpr Tool kTools[] = {
    {"nvcc",
     "check-memory --kernel FILE.cu cannot compile; programs that are built elsewhere are "
     "checked all the same",
     "install a CUDA toolkit, or set CUDA_HOME"},
    {"ptxas",
     "code in PTX that is newer than the driver runs unchecked; else nothing: the driver "
     "compiles",
     "install a CUDA toolkit, or set CUDA_HOME"},
    {"cuobjdump", "nothing in a run; you cannot look into cubins yourself", ""},
};

void ExamineTools(const Machine& machine, Observations& observations) {
  for (const Tool& tool : kTools) {
    Observation observation{.id = tool.name, .subject = tool.name};
    const std::string path = FindTool(machine, tool.name);
    if (path.empty()) {
      observation.standing = Standing::kNote;
      observation.found = "not found in PATH, CUDA_HOME or /usr/local/cuda";
      observation.cost = tool.cost;
      observation.advice = tool.advice;
      observations.push_back(observation);
      continue;
    }
    const ProbeAnswer answer =
        Probe::OfProgram({path, "--version"}, machine.environment, machine.Limit(kPatience), true)
            .Finish();
    const std::string version = ReleaseIn(answer.output);
    observation.details = {{"path", path}, {"version", version}};
    if (!answer.ok() || version.empty()) {
      observation.standing = Standing::kLimits;
      observation.found = path + (answer.ok() ? " tells no version" : ' ' + answer.Trouble());
      observation.cost = tool.cost;
      observation.advice = "try: " + path + " --version";
    } else {
      observation.found = version + ", " + path;
    }
    observations.push_back(observation);
  }
}

struct Library {
  std::string path;
  std::string version;  // of the toolkit or package that it belongs to; empty: unknown
};

// "13.0.85" for component `name` in a toolkit's version.json.
std::string ComponentVersion(const Machine& machine, const std::string& toolkit,
                             const std::string& name) {
  const std::string text = machine.Read(toolkit + "/version.json");
  const size_t component = text.find('"' + name + '"');
  const size_t key =
      component == std::string::npos ? component : text.find("\"version\"", component);
  const size_t begin = key == std::string::npos ? key : text.find('"', text.find(':', key));
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find('"', begin + 1) - begin - 1);
}

// Version of the Python package whose folder name begins with `name` ("nvidia_cuda_cupti").
std::string PackageVersion(const Machine& machine, const std::string& folder,
                           const std::string& name) {
  for (const std::string& entry : Entries(machine, folder, name)) {
    const size_t dash = entry.find('-', folder.size());
    const size_t end = entry.rfind(".dist-info");
    if (dash != std::string::npos && end != std::string::npos && dash < end) {
      return entry.substr(dash + 1, end - dash - 1);
    }
  }
  return "";
}

struct LibraryPlaces {
  std::string prefix;                   // of the file: "libcupti.so"
  std::vector<std::string> in_toolkit;  // folders
  std::string component;                // in version.json
  std::string package;                  // Python package, as its folder is called
};

std::vector<Library> FindLibraries(const Machine& machine, const LibraryPlaces& places,
                                   const std::vector<std::string>& site_packages) {
  std::vector<Library> found;
  const auto add = [&](const std::string& folder, const std::string& version) {
    const auto files = Entries(machine, folder, places.prefix);
    if (!files.empty()) found.push_back({files.front(), version});
  };
  for (const std::string& toolkit : Toolkits(machine)) {
    for (const std::string& folder : places.in_toolkit) {
      add(toolkit + '/' + folder, ComponentVersion(machine, toolkit, places.component));
    }
  }
  for (const std::string& site : site_packages) {
    for (const std::string& package : Entries(machine, site + "/nvidia", "")) {
      add(package + "/lib", PackageVersion(machine, site, places.package));
      add(package + "/compute-sanitizer", PackageVersion(machine, site, places.package));
    }
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"}) add(folder, "");
  return found;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

int Major(const std::string& version) { return std::atoi(version.c_str()); }

// In the order in which the interposer looks (interposer/sass_library.h). The first that is there.
std::optional<Library> FindSanitizer(const Machine& machine,
                                     const std::vector<std::string>& site_packages) {
  constexpr char kName[] = "/libsanitizer-public.so";
  constexpr char kPackage[] = "nvidia_cuda_sanitizer_api";
  if (const std::string named = machine.Variable(proto::kEnvSanitizerLibrary); !named.empty()) {
    return Library{named, ""};
  }
  std::vector<Library> places;
  std::vector<std::string> homes = Toolkits(machine);
  const std::string nvcc = machine.FindProgram("nvcc");
  if (!nvcc.empty()) homes.insert(homes.begin(), FolderOf(FolderOf(nvcc)));
  for (const std::string& home : homes) {
    places.push_back({home + "/compute-sanitizer" + kName,
                      ComponentVersion(machine, home, "cuda_sanitizer_api")});
  }
  for (const std::string& site : site_packages) {
    for (const char* folder : {"/nvidia/cu13/lib", "/nvidia/cu13/compute-sanitizer"}) {
      places.push_back({site + folder + kName, PackageVersion(machine, site, kPackage)});
    }
  }
  const std::string& own = machine.installation.directory;
  for (const char* folder : {"/toolkit/lib", "/toolkit/compute-sanitizer", "/sanitizer/lib"}) {
    if (access((own + folder + kName).c_str(), R_OK) == 0) return Library{own + folder + kName, ""};
  }
  for (const Library& place : places) {
    if (machine.Has(place.path)) return Library{machine.Path(place.path), place.version};
  }
  return std::nullopt;
}

// "" if the library loads and has what the engine calls, else why not.
std::string SanitizerObstacle(const Machine& machine, const std::string& path) {
  const auto load = [&path](int answer) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      dprintf(answer, "%s", dlerror());
    } else if (dlsym(library, "sanitizerSubscribe") == nullptr ||
               dlsym(library, "sanitizerSetDeviceGraphData") == nullptr) {
      dprintf(answer, "%s is of a CUDA before 12.1", path.c_str());
    }
  };
  const ProbeAnswer answer = Probe::OfFunction(load, machine.Limit(kPatience)).Finish();
  return answer.ok() ? answer.output : "loading " + path + ' ' + answer.Trouble();
}

// The engine is built only where the API's headers were; a library without it names none of its
// functions.
bool EngineIsBuiltIn(const std::string& interposer) {
  std::ifstream file(interposer, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return bytes.find("sanitizerPatchInstructions") != std::string::npos;
}

void ExamineSanitizer(const Machine& machine, const std::vector<std::string>& site_packages,
                      int driver_cuda_version, Observations& observations) {
  Observation sanitizer{.id = "sanitizer-api", .subject = "Sanitizer API"};
  const auto library = FindSanitizer(machine, site_packages);
  const auto limited = [&](const std::string& found, const std::string& advice) {
    sanitizer.standing = Standing::kLimits;
    sanitizer.found = found;
    sanitizer.cost =
        "kernels without PTX (cuBLAS, cuDNN, PyTorch's own) run unchecked; each is listed";
    sanitizer.advice = advice;
    observations.push_back(sanitizer);
  };
  if (!EngineIsBuiltIn(machine.installation.preload_library)) {
    return limited("this ops-debug was built without its headers, so without the second engine",
                   "install nvidia-cuda-sanitizer-api (pip) or a toolkit, then scripts/build.sh");
  }
  if (!library) {
    return limited("libsanitizer-public.so not found",
                   "install the toolkit's compute-sanitizer, or pip install "
                   "nvidia-cuda-sanitizer-api, or set OPS_DEBUG_SANITIZER_LIBRARY");
  }
  sanitizer.details = {{"path", library->path}, {"version", library->version}};
  if (const std::string obstacle = SanitizerObstacle(machine, library->path); !obstacle.empty()) {
    return limited(obstacle, "install another copy, or set OPS_DEBUG_SANITIZER_LIBRARY");
  }
  sanitizer.found = (library->version.empty() ? "" : library->version + ", ") + library->path;
  if (driver_cuda_version != 0 && Major(library->version) > driver_cuda_version / 1000) {
    const std::string driver = std::to_string(driver_cuda_version / 1000);
    return limited(sanitizer.found + "; the driver is of CUDA " + driver + " and may refuse it",
                   "use the Sanitizer API of CUDA " + driver);
  }
  observations.push_back(sanitizer);
}

void ExamineCupti(const Machine& machine, const std::vector<std::string>& site_packages,
                  Observations& observations) {
  Observation cupti{.id = "cupti", .subject = "CUPTI"};
  const auto libraries = FindLibraries(machine,
                                       {.prefix = "libcupti.so",
                                        .in_toolkit = {"extras/CUPTI/lib64", "lib64", "lib"},
                                        .component = "cuda_cupti",
                                        .package = "nvidia_cuda_cupti"},
                                       site_packages);
  if (libraries.empty()) {
    cupti.standing = Standing::kNote;
    cupti.found = "not found";
    cupti.cost = "none for checking; there are no hardware counters";
  } else {
    const Library& library = libraries.front();
    cupti.found =
        (library.version.empty() ? "version unknown" : library.version) + ", " + library.path;
    cupti.details = {{"path", library.path}, {"version", library.version}};
  }
  observations.push_back(cupti);

  Observation counters{.id = "counters", .subject = "GPU counters"};
  std::istringstream parameters(machine.Read("/proc/driver/nvidia/params"));
  std::string restricted;
  for (std::string line; std::getline(parameters, line);) {
    if (line.rfind("RmProfilingAdminOnly:", 0) == 0) restricted = line.substr(line.find(':') + 1);
  }
  restricted.erase(0, restricted.find_first_not_of(' '));
  counters.details = {{"RmProfilingAdminOnly", restricted}};
  if (restricted.empty()) {
    counters.standing = Standing::kNote;
    counters.found = "permission unknown: /proc/driver/nvidia/params does not tell";
  } else if (restricted == "0") {
    counters.found = "every user may read them";
  } else {
    counters.standing = Standing::kNote;
    counters.found = std::string("only administrators may read them (ERR_NVGPUCTRPERM)") +
                     (geteuid() == 0 ? "; you are root" : "");
    if (geteuid() != 0) {
      counters.cost = "none for checking; profilers cannot read counters";
      counters.advice =
          "root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then "
          "reload the driver";
    }
  }
  observations.push_back(counters);
}

}  // namespace

void ExamineToolkit(const Machine& machine, const std::vector<std::string>& site_packages,
                    int driver_cuda_version, Observations& observations) {
  ExamineTools(machine, observations);
  ExamineSanitizer(machine, site_packages, driver_cuda_version, observations);
  ExamineCupti(machine, site_packages, observations);
}

}  // namespace ops_debug::launcher
