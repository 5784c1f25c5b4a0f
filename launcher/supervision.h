// A run from start to exit code: analyzer, target, signals, verdict.
#pragma once

#include <string>
#include <vector>

#include "launcher/installation.h"
#include "launcher/run_options.h"

namespace ops_debug::launcher {

struct Target {
  std::string path;
  std::vector<std::string> arguments;  // with the program's own name in front
  bool expects_cuda = true;            // remark on it if it makes no driver call
};

// Runs the target under the tool; returns the exit code of ops-debug. Problems have been told.
// `has_findings`, unless null, tells whether there were any, whatever the exit code says.
int RunUnderTool(const Installation& installation, const RunOptions& options, const Target& target,
                 bool* has_findings = nullptr);

// Prints the report of logs, merged; returns the exit code.
int ReportLogs(const Installation& installation, const ReportOptions& options,
               const std::vector<std::string>& logs);

}  // namespace ops_debug::launcher
