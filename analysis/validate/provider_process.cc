// Files in a folder of our own; what a provider prints is kept and quoted if it fails.
#include "analysis/validate/provider_process.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "proto/provider.h"
#include "proto/tensor_file.h"

extern char** environ;

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMostPairsPerProcess = 256;
constexpr size_t kMostQuoted_bytes = 4000;

// A file without a name: what a child writes, as long as it likes.
class Capture {
 public:
  Capture() : fd_(memfd_create("ops-debug-output", MFD_CLOEXEC)) {}
  ~Capture() {
    if (fd_ >= 0) close(fd_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  int fd() const { return fd_; }
  std::string Text() const {
    const off_t size = lseek(fd_, 0, SEEK_END);
    std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  int fd_;
};

// Ours, with the provider's variables in place of those of the same name.
std::vector<std::string> EnvironmentOf(const Provider& provider) {
  std::vector<std::string> variables = provider.environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced =
        std::any_of(provider.environment.begin(), provider.environment.end(),
                    [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) variables.emplace_back(text);
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string LastLines(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) rest.remove_suffix(1);
  if (rest.size() > kMostQuoted_bytes) rest.remove_prefix(rest.size() - kMostQuoted_bytes);
  return std::string(rest);
}

std::string LastLine(const std::string& text) {
  const std::string lines = LastLines(text);
  return lines.substr(lines.rfind('\n') + 1);
}

// A message that says whose it is, once.
std::string Named(const Provider& provider, std::string_view message) {
  constexpr std::string_view kRunnersOwn = "ops-debug-runner: error: ";
  if (message.starts_with(kRunnersOwn)) message.remove_prefix(kRunnersOwn.size());
  if (message.starts_with(provider.name)) return std::string(message);
  return provider.name + ": " + std::string(message);
}

struct Ended {
  std::string output, errors;
};

// What the exit status of a provider means. kProviderCannot is said in its own last line; of a
// failure everything is quoted.
absl::Status Meaning(const Provider& provider, int status, const std::string& errors) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFEXITED(status) && WEXITSTATUS(status) == proto::kProviderCannot) {
    return absl::UnimplementedError(Named(provider, LastLine(errors)));
  }
  constexpr int kUsage = 2;  // what was asked is wrong, not the provider
  if (WIFEXITED(status) && WEXITSTATUS(status) == kUsage) {
    return absl::InvalidArgumentError(Named(provider, LastLines(errors)));
  }
  const std::string how = WIFSIGNALED(status)
                              ? absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                                             strsignal(WTERMSIG(status)), ")")
                              : absl::StrCat("exited with ", WEXITSTATUS(status));
  const std::string quoted = LastLines(errors);
  return absl::UnavailableError(absl::StrCat(provider.name, ": its provider ", how,
                                             quoted.empty() ? " and said nothing" : ":\n", quoted));
}

absl::StatusOr<Ended> RunCommand(const Provider& provider,
                                 const std::vector<std::string>& arguments) {
  std::vector<std::string> words = provider.command;
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = EnvironmentOf(provider);
  const std::vector<char*> argv = Pointers(words), envp = Pointers(variables);
  const Capture output, errors;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.fd(), STDERR_FILENO);
  // A broken pipe is our own exception, not the provider's.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int fault =
      posix_spawnp(&child, words.front().c_str(), &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) {
    return absl::UnavailableError(
        absl::StrCat(provider.name, ": cannot run ", words.front(), ": ", strerror(fault)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (absl::Status meaning = Meaning(provider, status, errors.Text()); !meaning.ok()) {
    return meaning;
  }
  return Ended{output.Text(), errors.Text()};
}

absl::Status WriteRequest(const std::string& path, const ProviderRequest& request) {
  std::vector<proto::Tensor> tensors = request.inputs;
  tensors.insert(tensors.end(), request.cotangents.begin(), request.cotangents.end());
  std::map<std::string, std::string> metadata = {
      {proto::kMetadataAttributes, request.attributes.dump()},
      {proto::kMetadataPrecision, request.float64 ? "float64" : "as-is"},
      {proto::kMetadataSeed, std::to_string(request.seed)}};
  if (!request.cotangents.empty()) metadata[proto::kMetadataGradients] = "1";
  return proto::WriteSafetensors(path, tensors, metadata);
}

ProviderResponse ResponseOf(const proto::TensorSet& set) {
  ProviderResponse response;
  for (const proto::Tensor& tensor : set.tensors) {
    if (absl::StartsWith(tensor.name, proto::kGradientPrefix)) {
      response.gradients[tensor.name.substr(std::strlen(proto::kGradientPrefix))] = tensor;
    } else {
      response.outputs.push_back(tensor);
    }
  }
  const auto description = set.metadata.find(proto::kMetadataDescription);
  if (description != set.metadata.end()) response.description = description->second;
  return response;
}

absl::StatusOr<ProviderResponse> ReadResponse(const Provider& provider, const std::string& path) {
  const absl::StatusOr<proto::TensorSet> set = proto::ReadTensors(path);
  if (!set.ok()) {
    return absl::UnavailableError(
        absl::StrCat(provider.name, ": its answer cannot be read: ", set.status().message()));
  }
  return ResponseOf(*set);
}

class Caller {
 public:
  Caller(const Provider& provider, const std::string& folder)
      : provider_(provider), prefix_(absl::StrCat(folder, "/", ++callers_, "-")) {}

  // Requests [begin, end) in one process; appends their answers, up to and with the first failure.
  void Serve(const std::vector<ProviderRequest>& requests, size_t begin, size_t end,
             std::vector<absl::StatusOr<ProviderResponse>>* answers) {
    std::vector<std::string> arguments;
    for (size_t i = begin; i < end; ++i) {
      arguments.push_back(Path("request", i));
      arguments.push_back(Path("response", i));
      if (absl::Status status = WriteRequest(Path("request", i), requests[i]); !status.ok()) {
        answers->push_back(status);
        return;
      }
    }
    const absl::StatusOr<Ended> ended = RunCommand(provider_, arguments);
    for (size_t i = begin; i < end; ++i) {
      std::error_code error;
      if (!ended.ok() && !fs::exists(Path("response", i), error)) {
        answers->push_back(ended.status());
        break;
      }
      answers->push_back(ReadResponse(provider_, Path("response", i)));
    }
    for (const std::string& path : arguments) unlink(path.c_str());  // what is mapped stays
  }

 private:
  std::string Path(const char* what, size_t number) const {
    return absl::StrCat(prefix_, what, number, ".safetensors");
  }
  // Calls may run side by side.
  static inline std::atomic<uint64_t> callers_{0};
  const Provider& provider_;
  const std::string prefix_;
};

}  // namespace

absl::StatusOr<Json> DescribeOperator(const Provider& provider, const Json& question) {
  const absl::StatusOr<Ended> ended = RunCommand(provider, {"--describe", question.dump()});
  if (!ended.ok()) return ended.status();
  Json answer = Json::parse(ended->output, nullptr, false);
  if (!answer.is_object()) {
    return absl::UnavailableError(absl::StrCat(
        provider.name, ": --describe did not print a JSON object: ", ended->output.substr(0, 200)));
  }
  return answer;
}

std::vector<absl::StatusOr<ProviderResponse>> CallProvider(
    const Provider& provider, const std::vector<ProviderRequest>& requests,
    const std::string& folder) {
  std::vector<absl::StatusOr<ProviderResponse>> answers;
  if (provider.command.empty()) {
    const absl::StatusOr<proto::TensorSet> set = proto::ReadTensors(provider.saved);
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(set.ok() ? absl::StatusOr<ProviderResponse>(ResponseOf(*set))
                                 : absl::UnavailableError(set.status().message()));
    }
    return answers;
  }
  Caller caller(provider, folder);
  while (answers.size() < requests.size()) {
    const size_t begin = answers.size();
    caller.Serve(requests, begin, std::min(begin + kMostPairsPerProcess, requests.size()),
                 &answers);
  }
  return answers;
}

}  // namespace ops_debug::analysis
