// Lines of proto/analyzer_link.h over a pipe.
#include "launcher/analyzer_process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace ops_debug::launcher {
namespace {

Problem FromErrorLine(const std::string& line) {
  const size_t text = line.find('\t') + 1;
  const size_t hint = line.find('\t', text);
  Problem problem{line.substr(text, hint - text), "", kExitToolFailure};
  if (hint != std::string::npos) problem.hint = line.substr(hint + 1);
  return problem;
}

Problem Silent() {
  return {"the analyzer ended without a report", "its last words, if any, stand above",
          kExitToolFailure};
}

}  // namespace

std::variant<AnalyzerProcess, Problem> AnalyzerProcess::StartWith(
    const Installation& installation, std::vector<std::string> arguments,
    const ReportOptions& options) {
  Pipe control = Pipe::Make();
  Pipe result = Pipe::Make();
  if (control.read.get() < 0 || result.read.get() < 0) {
    return Problem{"cannot make a pipe", "are too many files open?", kExitToolFailure};
  }
  arguments.insert(arguments.begin(), "ops-debug-analyzer");
  for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--format", options.format},
                                    {"--control-fd", std::to_string(control.read.get())},
                                    {"--result-fd", std::to_string(result.write.get())}}) {
    arguments.push_back(flag);
    arguments.push_back(value);
  }
  if (!options.output.empty()) arguments.push_back("--output=" + options.output);
  for (const std::string& file : options.suppressions)
    arguments.push_back("--suppressions=" + file);
  if (access(installation.suppressions.c_str(), R_OK) == 0) {
    arguments.push_back("--shipped-suppressions=" + installation.suppressions);
  }
  if (options.generate_suppressions) arguments.push_back("--gen-suppressions");
  if (options.list_kernels) arguments.push_back("--list-kernels");
  if (!options.precision_trace.empty())
    arguments.push_back("--precision-trace=" + options.precision_trace);
  auto started = Start({.path = installation.analyzer,
                        .arguments = arguments,
                        .environment = InheritedEnvironment(),
                        .inherited_fds = {control.read.get(), result.write.get()},
                        .without_stdin = true});
  if (auto* problem = std::get_if<Problem>(&started)) {
    problem->exit_code = kExitToolFailure;
    problem->hint = "build it: scripts/build.sh";
    return *problem;
  }
  AnalyzerProcess analyzer;
  analyzer.process_id_ = std::get<pid_t>(started);
  analyzer.control_ = std::move(control.write);
  analyzer.result_ = std::move(result.read);
  return analyzer;
}

std::variant<AnalyzerProcess, Problem> AnalyzerProcess::StartLive(const Installation& installation,
                                                                  const RunOptions& options,
                                                                  const std::string& ring_name,
                                                                  const std::string& replay_folder,
                                                                  bool expects_cuda) {
  std::vector<std::string> arguments = {"--ring=" + ring_name};
  if (!options.log.empty()) arguments.push_back("--log=" + options.log);
  if (!expects_cuda) arguments.push_back("--no-cuda-remark=0");
  if (!replay_folder.empty()) {
    arguments.insert(
        arguments.end(),
        {"--replay-folder=" + replay_folder, "--replay-launcher=" + installation.launcher,
         "--replayer=" + installation.replayer, "--replay-checks=" + options.ReplayChecks(),
         "--replay-time=" + std::to_string(options.replay_time_s)});
  }
  auto started = StartWith(installation, arguments, options.report);
  auto* analyzer = std::get_if<AnalyzerProcess>(&started);
  if (analyzer == nullptr) return started;
  const auto give_up = [&](Problem problem) {
    analyzer->End();
    RemoveUnfinishedReport(options.report.output);
    return problem;
  };
  while (true) {
    const bool open = analyzer->ReadMore();
    if (const auto line = analyzer->TakeLine()) {
      if (line->rfind("ready\t", 0) == 0) {
        analyzer->ring_name_ = line->substr(line->find('\t') + 1);
        return started;
      }
      return give_up(FromErrorLine(*line));
    }
    if (!open) return give_up(Silent());
  }
}

std::variant<AnalyzerProcess, Problem> AnalyzerProcess::StartOffline(
    const Installation& installation, const ReportOptions& options,
    const std::vector<std::string>& logs) {
  std::vector<std::string> arguments;
  for (const std::string& log : logs) arguments.push_back("--read=" + log);
  return StartWith(installation, arguments, options);
}

void AnalyzerProcess::End() {
  control_.Close();
  while (waitpid(process_id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RemoveUnfinishedReport(const std::string& output) {
  struct stat status {};
  if (output.empty() || output == "-" || stat(output.c_str(), &status) != 0) return;
  if (S_ISREG(status.st_mode) && status.st_size == 0) unlink(output.c_str());
  unlink((output + ".partial").c_str());
}

void AnalyzerProcess::EndOfTarget() {
  const char byte = 'e';
  // Never blocks: the pipe is empty. An analyzer that is gone is noticed on the other pipe.
  while (write(control_.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  control_.Close();
}

bool AnalyzerProcess::ReadMore() {
  char buffer[4096];
  const ssize_t size = read(result_.get(), buffer, sizeof(buffer));
  if (size > 0) received_.append(buffer, static_cast<size_t>(size));
  return size > 0 || (size < 0 && errno == EINTR);
}

std::optional<std::string> AnalyzerProcess::TakeLine() {
  const size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

std::optional<AnalyzerProcess::Request> AnalyzerProcess::TakeRequest() {
  const bool is_hang = received_.starts_with("hang\t");
  if (!is_hang && !received_.starts_with("replaying\t")) return std::nullopt;
  const std::optional<std::string> line = TakeLine();
  if (!line) return std::nullopt;
  const size_t number = line->find('\t') + 1;
  const size_t text = line->find('\t', number);
  Request request;
  if (is_hang) {
    request.hanging_process = static_cast<pid_t>(std::strtol(&(*line)[number], nullptr, 10));
    if (text != std::string::npos) request.text = line->substr(text + 1);
  } else {
    request.launches_to_replay = std::strtoull(&(*line)[number], nullptr, 10);
  }
  return request;
}

void AnalyzerProcess::SkipReplays() { kill(process_id_, SIGUSR1); }

std::variant<proto::Verdict, Problem> AnalyzerProcess::Outcome() const {
  const std::string line = received_.substr(0, received_.find('\n'));
  proto::Verdict verdict;
  if (proto::ParseVerdict(line, &verdict)) return verdict;
  if (line.rfind("error\t", 0) == 0) return FromErrorLine(line);
  return Silent();
}

}  // namespace ops_debug::launcher
