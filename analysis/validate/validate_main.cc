#include "analysis/validate/validate_main.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "analysis/compare/html_report.h"
#include "analysis/report_file.h"
#include "analysis/validate/validate.h"
#include "analysis/validate/validate_text.h"

namespace ops_debug::analysis {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitProviderFailed = 3;
constexpr int kExitUnjudged = 4;

int Tell(const absl::Status& status) {
  std::cerr << "ops-debug: error: " << status.message() << std::endl;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return kExitUsage;
    case absl::StatusCode::kUnimplemented:
      return kExitUnjudged;
    default:
      return kExitProviderFailed;
  }
}

// Everything lies beside this program.
ProviderTools FindTools(const ValidateOptions& options) {
  std::error_code error;
  const std::string folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  ProviderTools tools;
  tools.runner = folder + "/ops-debug-runner";
  tools.reference_program = folder + "/ops-debug-reference";
  tools.python_folder = folder + "/python";
  tools.emulator_folder = folder + "/emulator";
  tools.python = options.python;
  tools.emulator = options.device == "emulator";
  return tools;
}

int ExitCode(CaseState state, const ValidateOptions& options) {
  switch (state) {
    case CaseState::kPass:
      return 0;
    case CaseState::kFail:
      return options.error_exit_code;
    case CaseState::kUnjudged:
      return kExitUnjudged;
    case CaseState::kProviderFailed:
      break;
  }
  return kExitProviderFailed;
}

std::string Rendered(const ValidateReport& report, const ValidateOptions& options, bool colour) {
  if (options.format == "json") return ValidateJson(report);
  if (options.format == "html") return HtmlReport(report.AsDiff(), {.heatmap = options.heatmap});
  return ValidateText(report, {.colour = colour, .heat = options.heatmap});
}

// Ctrl-C reaches the provider, too; we then clean up and say so instead of dying with files around.
void LetProvidersEnd() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

int ValidateMain(int argc, char** argv) {
  const absl::StatusOr<ValidateOptions> options = ParseValidateOptions(argc, argv);
  if (!options.ok()) return Tell(options.status());
  LetProvidersEnd();
  absl::StatusOr<ReportFile> file = ReportFile::Open(options->output, STDOUT_FILENO);
  if (!file.ok()) return Tell(file.status());
  const absl::StatusOr<ValidateReport> report = Validate(*options, FindTools(*options));
  if (!report.ok()) {
    file->Discard();
    return Tell(report.status());
  }
  if (absl::Status status = file->Write(Rendered(*report, *options, WantsColour(file->fd())));
      !status.ok()) {
    return Tell(status);
  }
  if (!options->output.empty()) {
    std::cerr << "ops-debug: " << report->op << ' ' << StateText(report->State()) << " against "
              << report->reference << "; the report is in " << options->output << '\n';
  }
  return ExitCode(report->State(), *options);
}

}  // namespace ops_debug::analysis
