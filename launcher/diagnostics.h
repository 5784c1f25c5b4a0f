// What the launcher says when something is wrong, and the exit codes that only the tool itself
// uses.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ops_debug::launcher {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitToolFailure = 3;
inline constexpr int kExitNotChecked = 4;
inline constexpr int kDefaultExitFindings = 86;

struct Problem {
  std::string text;  // what happened and where
  std::string hint;  // what to do; may be empty
  int exit_code = kExitUsage;
};

// "ops-debug: error: TEXT\n  hint: HINT\n" on stderr. Returns the exit code.
int Tell(const Problem& problem);

// The candidate that `word` was probably meant to be, if one is near.
std::optional<std::string> Nearest(const std::string& word,
                                   const std::vector<std::string>& candidates);

}  // namespace ops_debug::launcher
