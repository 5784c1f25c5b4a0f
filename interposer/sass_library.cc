// The toolkit keeps the library in compute-sanitizer/; the PyPI packages keep it in nvidia/cu13/lib
// (13.0) or nvidia/cu13/compute-sanitizer (later). It needs no other file of theirs to subscribe
// and patch (measured): libsanitizer-collection.so and the injection libraries serve NVIDIA's own
// tool.
#include "interposer/sass_library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "interposer/dynamic_linker.h"
#include "proto/session.h"

namespace ops_debug::interposer {
namespace {

constexpr char kLibrary[] = "/libsanitizer-public.so";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Names in `folder` that start with `prefix`, the last in the alphabet first.
std::vector<std::string> Entries(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> found;
  DIR* directory = opendir(folder.c_str());
  if (!directory) return found;
  while (const dirent* entry = readdir(directory)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0)
      found.push_back(folder + "/" + entry->d_name);
  }
  closedir(directory);
  std::sort(found.rbegin(), found.rend());
  return found;
}

// The folder above that of the first nvcc on PATH.
std::string HomeOfNvcc() {
  const std::string path = Environment("PATH");
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    const std::string nvcc = path.substr(start, end - start) + "/nvcc";
    char real[PATH_MAX];
    if (access(nvcc.c_str(), X_OK) == 0 && realpath(nvcc.c_str(), real)) {
      return FolderOf(FolderOf(real));
    }
    start = end + 1;
  }
  return "";
}

void AddPackageFolder(std::string_view path, std::vector<std::string>* folders) {
  for (const std::string_view name : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.find(name);
    if (at != std::string_view::npos) folders->emplace_back(path.substr(0, at + name.size() - 1));
  }
}

// From what the process has loaded (extension modules, a framework's libraries), then from where a
// Python interpreter keeps its packages.
std::vector<std::string> PythonFolders() {
  std::vector<std::string> folders;
  VisitObjects(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name)
          AddPackageFolder(info->dlpi_name, static_cast<std::vector<std::string>*>(data));
        return 0;
      },
      &folders);
  char executable[PATH_MAX] = "";
  const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
  const std::string program(executable, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  if (program.find("/python") == std::string::npos) return folders;
  std::vector<std::string> prefixes{FolderOf(FolderOf(program)), "/usr/local"};
  const std::string environment = Environment("VIRTUAL_ENV");
  if (!environment.empty()) prefixes.insert(prefixes.begin(), environment);
  for (const std::string& prefix : prefixes) {
    for (const std::string& python : Entries(prefix + "/lib", "python3")) {
      folders.push_back(python + "/site-packages");
      folders.push_back(python + "/dist-packages");
    }
  }
  return folders;
}

void Append(std::vector<std::string>* candidates, const std::string& folder, const char* place) {
  if (folder.empty()) return;
  const std::string path = folder + place + kLibrary;
  if (std::find(candidates->begin(), candidates->end(), path) == candidates->end())
    candidates->push_back(path);
}

}  // namespace

SanitizerSurroundings LookAround() {
  SanitizerSurroundings around;
  around.named = Environment(proto::kEnvSanitizerLibrary);
  if (!around.named.empty()) return around;
  around.cuda_homes = {Environment("CUDA_HOME"), Environment("CUDA_PATH"), HomeOfNvcc()};
  around.system_homes = {"/usr/local/cuda"};
  for (const std::string& home : Entries("/usr/local", "cuda-"))
    around.system_homes.push_back(home);
  around.python_folders = PythonFolders();
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&LookAround), &info) != 0 && info.dli_fname)
    around.own_library = info.dli_fname;
  return around;
}

std::vector<std::string> SanitizerLibraryCandidates(const SanitizerSurroundings& around) {
  if (!around.named.empty()) return {around.named};
  std::vector<std::string> candidates;
  for (const auto* homes : {&around.cuda_homes, &around.system_homes}) {
    for (const std::string& home : *homes) Append(&candidates, home, "/compute-sanitizer");
  }
  for (const std::string& folder : around.python_folders) {
    Append(&candidates, folder, "/nvidia/cu13/lib");
    Append(&candidates, folder, "/nvidia/cu13/compute-sanitizer");
  }
  const std::string tree = FolderOf(FolderOf(around.own_library));
  Append(&candidates, tree, "/toolkit/lib");
  Append(&candidates, tree, "/toolkit/compute-sanitizer");
  Append(&candidates, tree, "/sanitizer/lib");
  return candidates;
}

#if OPS_DEBUG_HAVE_SANITIZER_API

bool LoadSanitizerApi(const std::string& path, SanitizerApi* api, std::string* failure) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* text = dlerror();
    *failure = text ? text : path + " cannot be loaded";
    return false;
  }
  const DlsymFunction find = RealDlsym();
  api->library = library;
  const char* missing = nullptr;
#define OPS_DEBUG_FUNCTION(name)                                           \
  api->name = reinterpret_cast<decltype(api->name)>(find(library, #name)); \
  if (!api->name) missing = #name;
  OPS_DEBUG_SANITIZER_FUNCTIONS(OPS_DEBUG_FUNCTION)
#undef OPS_DEBUG_FUNCTION
  if (!missing) return true;
  *failure = path + " is of an older CUDA (it lacks " + missing + ")";
  UnloadSanitizerApi(api);
  return false;
}

void UnloadSanitizerApi(SanitizerApi* api) {
  if (api->library) dlclose(api->library);
  *api = {};
}

#endif

}  // namespace ops_debug::interposer
