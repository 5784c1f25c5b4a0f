// What one replay said, in the words of the run that the launches came from: process, launches and
// allocations are those of the program; the engine is "replay".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace ops_debug::analysis {

// How it ended, as ops-debug-replayer says in its result file (CAPTURE.result: a word, then the
// reason in words).
enum class ReplayEnding : uint8_t {
  kComplete,
  kDeadlock,  // a launch can never go on, whatever others do
  kSpins,     // the same, unless something outside of the launches writes device memory
  kFailed     // everything else: nothing is known about what came later
};

struct ReplayResult {
  ReplayEnding ending = ReplayEnding::kFailed;
  std::string reason;                   // of kFailed and kSpins, for a report
  std::vector<proto::Event> events;     // races, reads, faults
  std::vector<proto::Event> deadlocks;  // of kSpins: true only if nobody else writes
};

// Reads CAPTURE.result and the log of the run that replayed it. `what_happened` says why there is
// no result file: "its process was killed by SIGSEGV".
ReplayResult ReadReplay(const std::string& capture_file, const std::string& log_file,
                        uint32_t process_id, const proto::LaunchCaptured& captured,
                        const std::string& what_happened);

// An event of the replay as one of the program. False: it says nothing about the program.
bool TranslateReplayed(const proto::LaunchCaptured& captured, proto::Event& event);

// Field `model` of a capture file; empty if it has none or cannot be read.
std::string ReadCaptureModel(const std::string& capture_file);

}  // namespace ops_debug::analysis
