// What the analyzer tells the launcher over the result pipe: lines of tab-separated fields.
//
//   ready <TAB> name of the ring           the ring exists, the target may start
//   hang <TAB> process id <TAB> text       a process of the run waits for a launch that can never
//                                          end, as a replay has proved: it should be ended
//   replaying <TAB> number                 the target has ended, so many launches are still to be
//                                          replayed; SIGUSR1 to the analyzer skips that
//   error <TAB> what happened <TAB> hint   the analyzer could not do its work; the last line
//   verdict <TAB> six numbers              the report is written; the last line
//
// The other direction is a pipe that carries one byte when the target has ended. If it closes
// without one, the launcher was killed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace ops_debug::proto {

struct Verdict {
  uint64_t findings = 0;  // errors; warnings do not count
  uint64_t launches = 0;
  uint64_t checked_launches = 0;
  uint64_t tool_errors = 0;  // diagnostics that say that the tool could not do its work
  uint64_t lost_events = 0;
  uint64_t processes = 0;  // that made CUDA calls
};

inline std::string FormatVerdict(const Verdict& verdict) {
  std::string line = "verdict";
  for (const uint64_t number : {verdict.findings, verdict.launches, verdict.checked_launches,
                                verdict.tool_errors, verdict.lost_events, verdict.processes}) {
    line += '\t' + std::to_string(number);
  }
  return line + '\n';
}

// False if `line` (without its newline) is no verdict.
inline bool ParseVerdict(const std::string& line, Verdict* verdict) {
  unsigned long long n[6];
  int end = 0;
  const int fields = std::sscanf(line.c_str(), "verdict\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu%n",
                                 &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &end);
  if (fields != 6 || static_cast<size_t>(end) != line.size()) return false;
  *verdict = {n[0], n[1], n[2], n[3], n[4], n[5]};
  return true;
}

}  // namespace ops_debug::proto
