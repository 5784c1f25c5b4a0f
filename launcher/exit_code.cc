// In order of weight: findings, a tool that could not work, too little checked, the program's own
// code. A run in which nothing was checked must not look like a clean one.
#include "launcher/exit_code.h"

#include <cstdio>

namespace ops_debug::launcher {
namespace {

std::string Percent(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g%%", value);
  return text;
}

}  // namespace

ExitDecision DecideExitCode(int program_code, const proto::Verdict& verdict,
                            const ReportOptions& options, bool expects_checks) {
  if (verdict.findings > 0 && options.error_exit_code != 0) return {options.error_exit_code, {}};
  if (verdict.tool_errors > 0) return {kExitToolFailure, {}};
  const auto launches = static_cast<double>(verdict.launches);
  const auto checked = static_cast<double>(verdict.checked_launches);
  if (expects_checks && verdict.launches > 0 && verdict.checked_launches == 0) {
    return {kExitNotChecked, Problem{"none of the " + std::to_string(verdict.launches) +
                                         " launches could be checked",
                                     "the report says why, kernel by kernel", kExitNotChecked}};
  }
  if (options.required_coverage_percent) {
    const double percent = verdict.launches == 0 ? 0 : 100 * checked / launches;
    if (percent < *options.required_coverage_percent) {
      return {kExitNotChecked,
              Problem{"only " + Percent(percent) + " of the launches were checked, " +
                          Percent(*options.required_coverage_percent) + " are required",
                      verdict.launches == 0 ? "no kernel was launched"
                                            : "the report says why, kernel by kernel",
                      kExitNotChecked}};
    }
  }
  return {program_code, {}};
}

}  // namespace ops_debug::launcher
