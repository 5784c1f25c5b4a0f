// Assembler processes that the program starts: Triton, XLA and nvcc run `ptxas` on a file of PTX.
// They inherit the environment, so this library is loaded there too; when such a process ends well,
// the pair of its input and output goes into the store's folder. Nothing else of the session
// happens in it: no ring is opened, nothing is announced.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "interposer/assembler_command.h"
#include "interposer/cubin_identity.h"
#include "interposer/files.h"
#include "interposer/library_hooks.h"
#include "interposer/ptx_folder.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

// "ptxas", "ptxas-blackwell", "ptxas.real" (behind a wrapper script).
bool IsAssembler() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  const char* slash = std::strrchr(path, '/');
  return std::strncmp(slash ? slash + 1 : path, "ptxas", 5) == 0;
}

std::vector<std::string> Arguments() {
  std::vector<std::string> arguments;
  std::string text;
  // The file claims a size of 0, so it is read as a stream.
  std::FILE* file = std::fopen("/proc/self/cmdline", "re");
  if (file == nullptr) return arguments;
  char part[4096];
  while (const size_t got = std::fread(part, 1, sizeof part, file)) text.append(part, got);
  std::fclose(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

bool LooksLikePtx(const std::string& text) {
  const size_t version = text.find(".version");
  return version != std::string::npos && text.find(".target", version) != std::string::npos &&
         text.find('\0') == std::string::npos;
}

void StorePair() {
  const AssemblerCommand command = ParseAssemblerCommand(Arguments());
  StoredPtx ptx;
  size_t inputs = 0;
  for (const std::string& input : command.inputs) {
    // An option that we do not know may have left its value among the inputs.
    std::string text;
    if (!ReadWholeFile(input, &text) || !LooksLikePtx(text)) continue;
    ptx.text = std::move(text);
    ++inputs;
  }
  std::string cubin;
  if (inputs != 1 || !ReadWholeFile(command.output, &cubin)) return;
  const std::optional<CubinIdentity> identity =
      IdentifyCubin({reinterpret_cast<const std::byte*>(cubin.data()), cubin.size()});
  if (!identity) return;
  ptx.options = command.options;
  ptx.origin = "ptxas";
  PtxFolder folder(Options().ptx_store);
  folder.Prepare();
  folder.Add(*identity, ptx);
}

void OnAssemblerExit(int status, void*) {
  if (status != 0) return;
  try {
    StorePair();
  } catch (...) {
  }
}

// As early as possible, so that it runs after everything that the program does at its exit.
__attribute__((constructor)) void WatchAssembler() {
  if (!RemembersPtx() || Options().ptx_store.empty()) return;
  if (IsAssembler()) on_exit(&OnAssemblerExit, nullptr);
}

}  // namespace
}  // namespace ops_debug::interposer
