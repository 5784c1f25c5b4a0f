// Children by posix_spawn: captured ones write into a pipe; those that run in our place share our
// streams and the terminal's signals.
#include "runner/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "proto/session.h"
#include "runner/text.h"

extern char** environ;

namespace ops_debug::runner {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The environment without what makes a process a target of ops-debug. Other preloaded libraries
// stay.
std::vector<std::string> ToolEnvironment() {
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(StrCat(proto::kEnvRing, "="))) continue;
    if (!text.starts_with(kPreload)) {
      environment.emplace_back(text);
      continue;
    }
    std::vector<std::string_view> kept;
    for (std::string_view library : StrSplit(text.substr(kPreload.size()), ": ")) {
      if (!library.empty() && library.find("libops_debug_") == std::string_view::npos)
        kept.push_back(library);
    }
    if (!kept.empty()) environment.push_back(StrCat(kPreload, StrJoin(kept, ":")));
  }
  return environment;
}

absl::StatusOr<int> Wait(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return absl::InternalError(StrCat("waitpid: ", std::strerror(errno)));
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

absl::StatusOr<ChildResult> RunCaptured(const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return absl::InternalError(StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  const std::vector<std::string> environment = ToolEnvironment();
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0].c_str(), &actions, nullptr,
                                Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (error != 0) {
    close(pipe_ends[0]);
    return absl::FailedPreconditionError(
        StrCat("cannot run ", arguments[0], ": ", std::strerror(error)));
  }
  ChildResult result;
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t size = read(pipe_ends[0], chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    result.output.append(chunk.data(), static_cast<size_t>(size));
  }
  close(pipe_ends[0]);
  absl::StatusOr<int> code = Wait(child);
  if (!code.ok()) return code.status();
  result.exit_code = *code < 0 ? 128 - *code : *code;
  return result;
}

absl::StatusOr<int> RunInPlace(const std::vector<std::string>& arguments) {
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0].c_str(), nullptr, nullptr,
                                Pointers(arguments).data(), environ);
  if (error != 0) {
    return absl::FailedPreconditionError(
        StrCat("cannot run ", arguments[0], ": ", std::strerror(error)));
  }
  // Ctrl-C reaches the whole foreground group; the program decides what it means.
  signal(SIGINT, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  absl::StatusOr<int> code = Wait(child);
  if (code.ok() && *code < 0) return 128 - *code;
  return code;
}

absl::Status ReplaceBy(const std::vector<std::string>& arguments) {
  execvp(arguments[0].c_str(), Pointers(arguments).data());
  return absl::FailedPreconditionError(
      StrCat("cannot run ", arguments[0], ": ", std::strerror(errno)));
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  const char* root = std::getenv("TMPDIR");
  std::string path = StrCat(root != nullptr && *root != '\0' ? root : "/tmp", "/ops-debug-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::FailedPreconditionError(StrCat("cannot make a temporary folder ", path, ": ",
                                                std::strerror(errno),
                                                "\n  hint: set TMPDIR to a folder with room"));
  }
  return TemporaryFolder(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace ops_debug::runner
