// A live run: from the ring into the analysis and, byte for byte, into the log.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <string>

#include "analysis/event_analysis.h"
#include "analysis/replays.h"
#include "analysis/run_log.h"
#include "proto/ring.h"

namespace ops_debug::analysis {

struct LiveOptions {
  int control_fd = -1;       // a byte comes when the target has ended; see proto/analyzer_link.h
  bool tell_no_cuda = true;  // remark on targets that made no driver call
  std::string ring_note;     // what was not as wished with the ring; empty: nothing
  ReplayOptions replays;
  // Called when the program has ended and so many captured launches are still to be replayed.
  std::function<void(uint64_t launches)> tell_replaying;
  // Called for a process of this run in which a launch hangs that can never end; `text` says so.
  std::function<void(uint32_t process_id, const std::string& text)> tell_hang;
  // Whether the user does not want to wait for replays any longer.
  std::function<bool()> is_interrupted;
};

// Reads until the target has ended and the ring is drained; a few seconds after the target's end at
// the latest, whatever its descendants do. Every message is read or counted as lost. `log` may be
// null. A log that fails (disk full) costs the log, not the run: the report says so. What only the
// consumer knows (losses) is added as events of its own. Processes of the run that still go on when
// the target has ended get a moment to end, too. Captured launches are replayed meanwhile; those
// that are left when the target has ended get a bounded time (replays.h).
void RecordLive(proto::RingConsumer& ring, RunLog* log, const LiveOptions& options,
                EventAnalysis& analysis);

// Reads a whole log, or all logs of a folder; damage becomes remarks. Error: the file is no log, or
// the folder holds none. In a folder, a file that is no log is remarked on and left out.
absl::Status ReadLog(const std::string& path, EventAnalysis& analysis);

}  // namespace ops_debug::analysis
