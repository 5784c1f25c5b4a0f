// Each schedule is a run of its own: a forked launcher with its own analyzer, ring and target,
// whose output goes to files. Runs are started in the order of their seeds and several at a time;
// once one has failed, only lower seeds matter, so the result is that of running them one after the
// other.
#include "launcher/schedules.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

namespace ops_debug::launcher {
namespace {

namespace fs = std::filesystem;

// Removed with all it holds at the end.
class WorkFolder {
 public:
  WorkFolder() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "ops-debug-schedules-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~WorkFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  bool ok() const { return !path_.empty(); }
  fs::path Of(uint64_t seed) const { return path_ / std::to_string(seed); }

 private:
  fs::path path_;
};

// How one schedule's run ended.
struct Ending {
  int code = 0;
  bool has_findings = false;
};

bool Redirect(const fs::path& file, int fd) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  if (opened < 0 || dup2(opened, fd) < 0) return false;
  close(opened);
  return true;
}

// In the child: the run of `seed`. Never returns.
[[noreturn]] void RunOne(const Installation& installation, RunOptions options, Target target,
                         uint64_t seed, const fs::path& folder, bool saves_outputs) {
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || !Redirect(folder / "stdout", STDOUT_FILENO) ||
      !Redirect(folder / "stderr", STDERR_FILENO)) {
    _exit(kExitToolFailure);
  }
  if (seed != 0) options.schedule_seed = seed;
  if (!options.report.output.empty() && options.report.output != "-")
    options.report.output = folder / "report";
  if (!options.log.empty()) options.log = folder / "log";
  if (saves_outputs)
    target.arguments.insert(target.arguments.begin() + 1,
                            "--save-outputs=" + (folder / "outputs").string());
  bool has_findings = false;
  const int code = RunUnderTool(installation, options, target, &has_findings);
  std::cout.flush();
  std::cerr.flush();
  if (has_findings) std::ofstream(folder / "findings");
  _exit(code);
}

void Copy(const fs::path& file, std::ostream& out) {
  std::ifstream in(file, std::ios::binary);
  if (in.peek() != std::ifstream::traits_type::eof()) out << in.rdbuf();
  out.flush();
}

std::string Contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The first output whose bytes differ; empty if none does.
std::string DifferentOutput(const fs::path& expected, const fs::path& actual) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(expected, error)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (Contents(file) != Contents(actual / file.filename())) return file.stem().string();
  }
  return {};
}

std::string Ended(const Ending& ending) {
  if (ending.has_findings) return "findings";
  if (ending.code > 128 && ending.code < 128 + 65)
    return "killed by signal " + std::to_string(ending.code - 128);
  return "exit code " + std::to_string(ending.code);
}

class Exploration {
 public:
  Exploration(const Installation& installation, const RunOptions& options, const Target& target,
              uint64_t count, bool compare_outputs)
      : installation_(installation),
        options_(options),
        target_(target),
        count_(count),
        compare_outputs_(compare_outputs) {}

  int Run() {
    if (!folder_.ok()) {
      return Tell(
          {"cannot make a folder for the runs' output", "is TMPDIR writable?", kExitToolFailure});
    }
    // What outputs are compared with; a default schedule that fails needs no others.
    if (compare_outputs_) {
      StartSeed(0);
      WaitForOne();
      if (failed_) return Show(0, "the default schedule fails already: " + reason_);
    }
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    for (uint64_t next = 1; next <= count_ || !running_.empty();) {
      if (next <= count_ && !failed_ && running_.size() < cores) {
        if (!StartSeed(next++)) return kExitToolFailure;
        continue;
      }
      if (running_.empty()) break;
      WaitForOne();
    }
    if (!failed_) {
      Deliver(count_);
      std::cerr << "ops-debug: " << count_ << (count_ == 1 ? " schedule" : " schedules")
                << " ran, none failed\n";
      return 0;
    }
    const std::string seed = std::to_string(*failed_);
    return Show(*failed_, "schedule " + seed + " of " + std::to_string(count_) +
                              " failed: " + reason_ +
                              "\n  the schedules before it did not; run it "
                              "again with --replay " +
                              seed + " instead of --schedules");
  }

 private:
  bool StartSeed(uint64_t seed) {
    std::error_code error;
    fs::create_directory(folder_.Of(seed), error);
    std::cout.flush();
    std::cerr.flush();
    const pid_t child = fork();
    if (child < 0) {
      Tell({"cannot start a process", "is a limit on processes or memory reached?",
            kExitToolFailure});
      return false;
    }
    if (child == 0)
      RunOne(installation_, options_, target_, seed, folder_.Of(seed), compare_outputs_);
    running_[child] = seed;
    return true;
  }

  void WaitForOne() {
    int status = 0;
    pid_t child = 0;
    do {
      child = wait(&status);
    } while (child < 0 && errno == EINTR);
    const auto found = running_.find(child);
    if (found == running_.end()) return;
    const uint64_t seed = found->second;
    running_.erase(found);
    Ending ending;
    ending.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    ending.has_findings = fs::exists(folder_.Of(seed) / "findings");
    std::string reason;
    if (ending.code != 0 || ending.has_findings) {
      reason = Ended(ending);
    } else if (compare_outputs_ && seed != 0) {
      const std::string name =
          DifferentOutput(folder_.Of(0) / "outputs", folder_.Of(seed) / "outputs");
      if (!name.empty()) {
        reason = "nondeterministic: output " + name + " differs from that of the default schedule";
        ending.code = options_.report.error_exit_code;
      }
    }
    if (reason.empty() || (failed_ && *failed_ < seed)) {
      Forget(seed);
      return;
    }
    if (failed_) Forget(*failed_);
    failed_ = seed;
    reason_ = reason;
    code_ = ending.code;
    for (const auto& [process, other] : running_) {
      if (other > seed) kill(process, SIGTERM);
    }
  }

  // The last seed's files are kept: without a failure, they are what the user gets.
  void Forget(uint64_t seed) {
    if (seed == 0 || seed == count_) return;
    std::error_code error;
    fs::remove_all(folder_.Of(seed), error);
  }

  // Report and log of `seed` to where the user wants them.
  void Deliver(uint64_t seed) {
    std::error_code error;
    const auto overwrite = fs::copy_options::overwrite_existing;
    const std::string& report = options_.report.output;
    if (!report.empty() && report != "-" && fs::exists(folder_.Of(seed) / "report"))
      fs::copy_file(folder_.Of(seed) / "report", report, overwrite, error);
    if (!options_.log.empty() && !error && fs::exists(folder_.Of(seed) / "log"))
      fs::copy_file(folder_.Of(seed) / "log", options_.log, overwrite, error);
    if (error) Tell({"cannot write the report or log: " + error.message(), "", kExitToolFailure});
  }

  int Show(uint64_t seed, const std::string& message) {
    Copy(folder_.Of(seed) / "stdout", std::cout);
    Copy(folder_.Of(seed) / "stderr", std::cerr);
    Deliver(seed);
    std::cerr << "ops-debug: " << message << '\n';
    return code_;
  }

  const Installation& installation_;
  const RunOptions& options_;
  const Target& target_;
  const uint64_t count_;
  const bool compare_outputs_;
  WorkFolder folder_;
  std::map<pid_t, uint64_t> running_;  // seed of each process
  std::optional<uint64_t> failed_;     // the lowest so far
  std::string reason_;
  int code_ = 0;
};

}  // namespace

int RunSchedules(const Installation& installation, const RunOptions& options, const Target& target,
                 uint64_t count, bool compare_outputs) {
  return Exploration(installation, options, target, count, compare_outputs).Run();
}

}  // namespace ops_debug::launcher
