// exec and posix_spawn, exported: to look, never to change. Two things matter there:
//
//  - The process goes on as another program under the same process id: what this one has to report
//    is sent before.
//  - The child's environment may have lost what brings the tool into it. LD_PRELOAD alone may go:
//    the driver then loads us (injection.cc), if CUDA_INJECTION64_PATH and the session are still
//    there. Without those nothing can be done but to say which program ran unseen.
//
// A child of vfork shares the memory of its parent, so nothing is left locked when the real
// function is called. The forms that glibc builds on others inside itself (system, popen) cannot be
// seen from here; they pass the environment on as it is.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

#include "interposer/dynamic_linker.h"
#include "interposer/event_sender.h"
#include "interposer/process_state.h"
#include "interposer/session.h"
#include "proto/session.h"

namespace ops_debug::interposer {
namespace {

void* Next(std::atomic<void*>& cached, const char* name) noexcept {
  void* function = cached.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = RealDlsym()(RTLD_NEXT, name);
    cached.store(function, std::memory_order_release);
  }
  return function;
}

#define OPS_DEBUG_REAL_FUNCTION(name)                                                         \
  [] {                                                                                        \
    constinit static std::atomic<void*> cached{};                                             \
    return reinterpret_cast<decltype(&::name)>(::ops_debug::interposer::Next(cached, #name)); \
  }()

const char* Value(char* const environment[], const char* name) {
  const size_t length = std::strlen(name);
  for (char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
      return *entry + length + 1;
    }
  }
  return nullptr;
}

// What is missing for the tool to come along; empty: nothing.
std::string Missing(char* const environment[]) {
  const std::string& library = Options().library;
  const char* const preload = Value(environment, "LD_PRELOAD");
  const char* const injection = Value(environment, "CUDA_INJECTION64_PATH");
  const bool preloaded = preload != nullptr && std::strstr(preload, library.c_str()) != nullptr;
  const bool injected = injection != nullptr && library == injection;
  const bool in_session = Value(environment, proto::kEnvRing) != nullptr;
  if (in_session && (preloaded || injected)) return {};
  std::string missing = preloaded ? "" : "LD_PRELOAD";
  if (!injected && injection == nullptr) missing += ", CUDA_INJECTION64_PATH";
  if (!in_session) missing += std::string(", ") + proto::kEnvRing;
  return missing.rfind(", ", 0) == 0 ? missing.substr(2) : missing;
}

// False if the file surely is a program without a dynamic loader (ldconfig, busybox): it cannot
// load the driver, so it is no loss.
bool MayUseDriver(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  constexpr size_t kMostHeaders = 32;
  ElfW(Ehdr) header{};
  ElfW(Phdr) segments[kMostHeaders];
  bool may = true;
  if (pread(file, &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header)) &&
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_phnum <= kMostHeaders &&
      header.e_phentsize == sizeof(ElfW(Phdr))) {
    const auto bytes = static_cast<ssize_t>(header.e_phnum * sizeof(ElfW(Phdr)));
    if (pread(file, segments, static_cast<size_t>(bytes), static_cast<off_t>(header.e_phoff)) ==
        bytes) {
      may = std::any_of(segments, segments + header.e_phnum,
                        [](const ElfW(Phdr) & segment) { return segment.p_type == PT_INTERP; });
    }
  }
  close(file);
  return may;
}

void Look(const char* program, char* const environment[]) noexcept {
  if (!Options().active || Options().library.empty() || program == nullptr) return;
  const int error = errno;
  try {
    const std::string missing = Missing(environment);
    // Searches of PATH try files that are not there.
    const bool concerns = std::strchr(program, '/') == nullptr ||
                          (access(program, X_OK) == 0 && MayUseDriver(program));
    if (!missing.empty() && concerns && EnterHandlerQuietly()) {
      SendOnce({.severity = proto_enums::Severity::kNote,
                .text = std::string(program) +
                        " was started without the tool: its environment was cleared (" + missing +
                        " missing); what it runs on the GPU is not in this report",
                .hint = "let the program pass these variables on to its children"});
      LeaveHandler();
    }
  } catch (...) {
  }
  errno = error;
}

// Before and after a call that replaces this program.
class Replacement {
 public:
  Replacement(const char* program, char* const environment[]) {
    Look(program, environment);
    const int error = errno;
    if (Options().active) EndBeforeExec();
    errno = error;
  }
  ~Replacement() {
    const int error = errno;
    if (Options().active) ExecFailed();
    errno = error;
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
};

// The arguments of execl and its kin, on the stack: a child of vfork must not allocate.
#define OPS_DEBUG_COLLECT_ARGUMENTS(first, list, arguments)                           \
  va_list list;                                                                       \
  va_start(list, first);                                                              \
  size_t count_ = 1;                                                                  \
  while (va_arg(list, char*) != nullptr) ++count_;                                    \
  va_end(list);                                                                       \
  char** const arguments = static_cast<char**>(alloca((count_ + 1) * sizeof(char*))); \
  va_start(list, first);                                                              \
  (arguments)[0] = const_cast<char*>(first);                                          \
  for (size_t i_ = 1; i_ <= count_; ++i_) (arguments)[i_] = va_arg(list, char*)

}  // namespace
}  // namespace ops_debug::interposer

#define OPS_DEBUG_EXPORT __attribute__((visibility("default")))

using ops_debug::interposer::Look;
using ops_debug::interposer::Replacement;

extern "C" {

OPS_DEBUG_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) noexcept {
  const Replacement replacement(path, envp);
  return OPS_DEBUG_REAL_FUNCTION(execve)(path, argv, envp);
}

OPS_DEBUG_EXPORT int execv(const char* path, char* const argv[]) noexcept {
  const Replacement replacement(path, environ);
  return OPS_DEBUG_REAL_FUNCTION(execv)(path, argv);
}

OPS_DEBUG_EXPORT int execvp(const char* file, char* const argv[]) noexcept {
  const Replacement replacement(file, environ);
  return OPS_DEBUG_REAL_FUNCTION(execvp)(file, argv);
}

OPS_DEBUG_EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) noexcept {
  const Replacement replacement(file, envp);
  return OPS_DEBUG_REAL_FUNCTION(execvpe)(file, argv, envp);
}

OPS_DEBUG_EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) noexcept {
  const Replacement replacement(argv[0], envp);
  return OPS_DEBUG_REAL_FUNCTION(fexecve)(fd, argv, envp);
}

OPS_DEBUG_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  OPS_DEBUG_COLLECT_ARGUMENTS(first, list, arguments);
  va_end(list);
  const Replacement replacement(path, environ);
  return OPS_DEBUG_REAL_FUNCTION(execv)(path, arguments);
}

OPS_DEBUG_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  OPS_DEBUG_COLLECT_ARGUMENTS(first, list, arguments);
  va_end(list);
  const Replacement replacement(file, environ);
  return OPS_DEBUG_REAL_FUNCTION(execvp)(file, arguments);
}

OPS_DEBUG_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  OPS_DEBUG_COLLECT_ARGUMENTS(first, list, arguments);
  char* const* const envp = va_arg(list, char* const*);
  va_end(list);
  const Replacement replacement(path, envp);
  return OPS_DEBUG_REAL_FUNCTION(execve)(path, arguments, envp);
}

OPS_DEBUG_EXPORT int posix_spawn(pid_t* process, const char* path,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const argv[],
                                 char* const envp[]) {
  Look(path, envp);
  return OPS_DEBUG_REAL_FUNCTION(posix_spawn)(process, path, actions, attributes, argv, envp);
}

OPS_DEBUG_EXPORT int posix_spawnp(pid_t* process, const char* file,
                                  const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, char* const argv[],
                                  char* const envp[]) {
  Look(file, envp);
  return OPS_DEBUG_REAL_FUNCTION(posix_spawnp)(process, file, actions, attributes, argv, envp);
}

}  // extern "C"
