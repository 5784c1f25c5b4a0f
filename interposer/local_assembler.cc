// Runs ptxas as a child with files in a temporary folder. The child gets the program's environment
// without what would bring this library and its session into it.
#include "interposer/local_assembler.h"

#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "interposer/dynamic_linker.h"
#include "interposer/files.h"

namespace ops_debug::interposer {
namespace {

constexpr size_t kLogBytesShown = 400;

// Where ptxas lies from the folder of a library that a toolkit or a framework brings.
constexpr const char* kFromLibrary[] = {
    "/../bin/ptxas",                            // a toolkit, its wheels, torch/lib
    "/../../bin/ptxas",                         // targets/…/lib
    "/../../triton/backends/nvidia/bin/ptxas",  // torch/lib
};

bool HasSuchNeighbours(std::string_view library) {
  for (const char* name : {"libnvrtc", "libcudart", "libtorch", "libnvJitLink", "libtriton"}) {
    if (library.find(name) != std::string_view::npos) return true;
  }
  return false;
}

struct Search {
  std::vector<std::string> found;
  void Try(const std::string& path) {
    if (access(path.c_str(), X_OK) == 0 && std::ranges::find(found, path) == found.end())
      found.push_back(path);
  }
};

int VisitLibrary(dl_phdr_info* info, size_t, void* data) {
  try {
    const std::string_view name = info->dlpi_name ? info->dlpi_name : "";
    const size_t slash = name.rfind('/');
    if (slash == std::string_view::npos || !HasSuchNeighbours(name.substr(slash))) return 0;
    for (const char* way : kFromLibrary)
      static_cast<Search*>(data)->Try(std::string(name.substr(0, slash)) + way);
  } catch (...) {
  }
  return 0;
}

// Files of one run, gone at the end.
class Workplace {
 public:
  Workplace() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder && folder[0] == '/' ? folder : "/tmp") + "/ops-debug-XXXXXX";
    good_ = mkdtemp(path_.data()) != nullptr;
  }
  ~Workplace() {
    if (!good_) return;
    for (const std::string& file : {input(), output(), log()}) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  bool good() const { return good_; }
  std::string input() const { return path_ + "/module.ptx"; }
  std::string output() const { return path_ + "/module.cubin"; }
  std::string log() const { return path_ + "/log"; }

 private:
  std::string path_;
  bool good_ = false;
};

std::string Target(const std::string& ptx, uint32_t arch) {
  const size_t at = ptx.find(".target");
  const size_t begin = at == std::string::npos ? at : ptx.find("sm_", at);
  if (begin != std::string::npos) {
    const size_t end = ptx.find_first_not_of("sm_0123456789af", begin);
    const std::string target = ptx.substr(begin, end - begin);
    if (target.back() == 'a' || target.back() == 'f') return target;
  }
  return "sm_" + std::to_string(arch);
}

bool Run(const std::string& program, std::vector<std::string> arguments, const std::string& log) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** variable = environ; variable && *variable; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("LD_PRELOAD=") || text.starts_with("OPS_DEBUG_") ||
        text.starts_with("CUDA_INJECTION64_PATH="))
      continue;
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  if (posix_spawn_file_actions_init(&files) != 0) return false;
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &files, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return false;
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  // A program that ignores SIGCHLD, or reaps every child, leaves no status: the output decides.
  return waited < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

std::vector<std::string> LocalAssemblers() {
  Search search;
  VisitObjects(&VisitLibrary, &search);
  const char* path = std::getenv("PATH");
  std::string_view folders = path ? path : "";
  while (!folders.empty()) {
    const size_t colon = std::min(folders.find(':'), folders.size());
    if (colon > 0) search.Try(std::string(folders.substr(0, colon)) + "/ptxas");
    folders.remove_prefix(std::min(colon + 1, folders.size()));
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) search.Try(std::string(home) + "/bin/ptxas");
  }
  search.Try("/usr/local/cuda/bin/ptxas");
  return search.found;
}

std::string AssembleLocally(const std::string& ptx, uint32_t arch, const AssemblerOptions& options,
                            std::string* why) {
  const std::vector<std::string> assemblers = LocalAssemblers();
  if (assemblers.empty()) {
    *why = "no ptxas was found on PATH or beside the program's libraries";
    return "";
  }
  Workplace workplace;
  int error = 0;
  if (!workplace.good() || !WriteWholeFile(workplace.input(), ptx, &error)) {
    *why = "cannot write a temporary file";
    return "";
  }
  std::vector<std::string> arguments = {"-arch=" + Target(ptx, arch), workplace.input(), "-o",
                                        workplace.output()};
  if (options.max_registers > 0)
    arguments.push_back("--maxrregcount=" + std::to_string(options.max_registers));
  if (options.optimization >= 0) arguments.push_back("-O" + std::to_string(options.optimization));
  std::string cubin;
  for (const std::string& assembler : assemblers) {
    unlink(workplace.output().c_str());
    if (Run(assembler, arguments, workplace.log()) && ReadWholeFile(workplace.output(), &cubin) &&
        !cubin.empty())
      return cubin;
  }
  std::string log;
  ReadWholeFile(workplace.log(), &log);
  *why = "ptxas rejects it: " + log.substr(0, kLogBytesShown);
  return "";
}

}  // namespace ops_debug::interposer
