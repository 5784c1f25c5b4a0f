// Flags as data: one table per group drives parsing, help and, for kernel flags, what is handed on
// to ops-debug-runner.
#pragma once

#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/diagnostics.h"

namespace ops_debug::launcher {

struct Flag {
  const char* name;      // without dashes
  const char* argument;  // placeholder in help; null: a switch
  const char* help;      // null: hidden
  bool repeatable = false;
};

// Of every command that runs a target.
extern const std::span<const Flag> kRunFlags;
// Of `run` only.
extern const std::span<const Flag> kCheckFlags;
// Of `check-sync` only.
extern const std::span<const Flag> kSyncFlags;
// Of `check-precision` only.
extern const std::span<const Flag> kPrecisionFlags;
// Of `replay` only.
extern const std::span<const Flag> kReplayFlags;
// Of commands that take --kernel; handed on as they are.
extern const std::span<const Flag> kKernelFlags;
// Of `report`.
extern const std::span<const Flag> kReportFlags;
// Of `diff`; handed on as they are.
extern const std::span<const Flag> kDiffFlags;
// Of `validate`; handed on as they are.
extern const std::span<const Flag> kValidateFlags;

class FlagValues {
 public:
  bool Has(const std::string& name) const { return values_.count(name) != 0; }
  // The value, or `fallback`.
  std::string Get(const std::string& name, const std::string& fallback = "") const;
  std::vector<std::string> All(const std::string& name) const;
  void Add(const std::string& name, const std::string& value) { values_[name].push_back(value); }

  std::vector<std::string> operands;  // what is no flag
  std::vector<std::string> command;   // behind "--"
  bool has_separator = false;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

// Parses what follows the subcommand.
std::variant<FlagValues, Problem> ParseFlags(const std::vector<std::string>& arguments,
                                             const std::vector<std::span<const Flag>>& groups);

// Help lines of one group.
std::string DescribeFlags(const std::string& title, std::span<const Flag> flags);

}  // namespace ops_debug::launcher
