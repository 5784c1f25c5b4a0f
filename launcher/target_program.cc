// PATH search and a look at the ELF header: a program without a dynamic loader ignores LD_PRELOAD,
// and nobody would notice.
#include "launcher/target_program.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace ops_debug::launcher {
namespace {

std::string PreloadObstacle(const std::string& path, const struct stat& status) {
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0 && geteuid() != 0) {
    return path +
           " is set-uid: the system keeps the preload library out of it; nothing will be checked";
  }
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return "";
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "";  // a script: its interpreter decides
  if (header.e_ident[EI_CLASS] != ELFCLASS64) {
    return path + " is a 32-bit program: the preload library is 64-bit; nothing will be checked";
  }
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t{i} * header.e_phentsize));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof(segment))) return "";
    if (segment.p_type == PT_INTERP) return "";
  }
  return path + " is statically linked: no preload library can enter it; nothing will be checked";
}

Problem NotExecutable(const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  std::string hint = "chmod +x " + path;
  if (ending == ".py") hint = "run it as: python3 " + path;
  if (ending == ".cu" || ending == ".ptx") {
    hint = "run it as: ops-debug check-memory --kernel " + path;
  }
  return {path + " is not executable", hint};
}

}  // namespace

std::variant<TargetProgram, Problem> FindTarget(const std::string& name) {
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      candidates.push_back((folder.empty() ? "." : folder) + '/' + name);
    }
  }
  std::string unusable;
  for (const std::string& candidate : candidates) {
    struct stat status {};
    if (stat(candidate.c_str(), &status) != 0) continue;
    if (S_ISDIR(status.st_mode)) {
      if (candidate == name) return Problem{name + " is a directory", "name the program in it"};
      continue;
    }
    if (access(candidate.c_str(), X_OK) != 0) {
      unusable = candidate;
      continue;
    }
    return TargetProgram{candidate, PreloadObstacle(candidate, status)};
  }
  if (!unusable.empty()) return NotExecutable(unusable);
  if (candidates.size() != 1 && access(name.c_str(), F_OK) == 0) {
    return Problem{name + ": command not found", "did you mean ./" + name + "?"};
  }
  return Problem{name + (candidates.size() == 1 && candidates[0] == name ? ": no such file"
                                                                         : ": command not found"),
                 "check the name behind --"};
}

}  // namespace ops_debug::launcher
