// What ops-debug keeps for a user from run to run: in the state folder of the XDG Base Directory
// Specification, $XDG_STATE_HOME if it is absolute, else ~/.local/state.
//
//   last.json       the pair of tensor files that the last `validate` left
//   (analysis/compare/last_run.h) last-captures   folders of `run --capture`, one a line, the
//   newest first; two are kept
#pragma once

#include <cstdlib>
#include <string>

namespace ops_debug::proto {

constexpr char kLastPairFile[] = "/last.json";
constexpr char kLastCapturesFile[] = "/last-captures";

// Empty: there is neither $XDG_STATE_HOME nor $HOME. The folder need not exist.
inline std::string StateFolder() {
  const auto absolute = [](const char* variable) -> std::string {
    const char* path = std::getenv(variable);
    return path != nullptr && path[0] == '/' ? path : "";
  };
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) {
    return state + "/ops-debug";
  }
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/ops-debug";
}

}  // namespace ops_debug::proto
