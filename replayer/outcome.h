// How a replay ended, for the analyzer, which started it: a word, and the reason in words for a
// report. The exit status says the same, but ops-debug replaces it when there are findings, so it
// is also written beside the capture.
#pragma once

#include <string>
#include <string_view>

namespace ops_debug::replayer {

// Values are exit statuses; 2 is wrong usage.
enum class OutcomeKind {
  kComplete = 0,     // every launch ran to its end
  kDamaged = 3,      // the capture file cannot be used
  kUnplaceable = 4,  // its addresses are taken in this process
  kUnsupported = 5,  // something that the CPU device lacks
  kFailed = 6,       // a launch or a call failed
  kDeadlock = 7,     // no thread of a launch can ever go on
  kWaits = 8,        // threads wait for memory that the host can write: nothing is proved
  // Like a deadlock, but a thread spins on global memory: another launch or a copy could end it.
  kSpins = 9,
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kComplete;
  std::string reason;

  bool ok() const { return kind == OutcomeKind::kComplete; }
};

// "complete", "damaged", ...
std::string_view WordOf(OutcomeKind kind);

// Writes CAPTURE.result: the word, a line end, the reason. It is there completely or not at all.
void WriteOutcome(const std::string& capture_path, const Outcome& outcome);

}  // namespace ops_debug::replayer
