// The exit code of a run, from what the program did and what the analyzer says.
#pragma once

#include <optional>

#include "launcher/diagnostics.h"
#include "launcher/run_options.h"
#include "proto/analyzer_link.h"

namespace ops_debug::launcher {

struct ExitDecision {
  int code = 0;
  std::optional<Problem> problem;  // to be told to the user
};

// `program_code`: the program's own, 128 + signal if one killed it; 0 for `report`.
// `expects_checks`: false where the user asked for none.
ExitDecision DecideExitCode(int program_code, const proto::Verdict& verdict,
                            const ReportOptions& options, bool expects_checks);

}  // namespace ops_debug::launcher
