// What the replays of captured launches say: which launches they speak for, and what stays open.
//
// The instrumented kernel cannot decide pairs of accesses that fences, flags or asynchronous copies
// may order; it reports them as unproven. A launch that was replayed to its end on the CPU device
// is decided there, with exact happens-before. Only the first launch of a kernel and launch shape
// is replayed, so a pair is decided if that launch showed it (later launches that show the same
// pair again are counted with the first). A pair that only a later launch shows stays open: its
// data may be the reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class ReplayBook {
 public:
  void Add(uint32_t process, const proto::LaunchCaptured& captured);
  void Add(uint32_t process, const proto::LaunchNotCaptured& not_captured);
  void Add(uint32_t process, const proto::ReplayEnded& ended);

  // Whether a replay has seen all that could make this unproven pair a race: it is none then, or
  // stands among the findings of the replay.
  bool Decides(uint32_t process, const proto::Race& race) const;

  // `decided_pairs` is left to the caller.
  ReplaySummary Finish() const;

 private:
  struct Capture {
    proto::LaunchCaptured captured;
    bool ended = false;
    proto::ReplayEnded end;
  };
  struct Open {
    uint32_t process = 0;
    proto::CapturedLaunch launch;
    std::string reason;
  };

  std::map<std::pair<uint32_t, uint64_t>, Capture> captures_;  // by process and capture
  std::vector<Open> not_captured_;
};

}  // namespace ops_debug::analysis
