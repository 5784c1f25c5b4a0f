// A live run: from the ring into the analysis and, byte for byte, into the log.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "analysis/event_analysis.h"
#include "proto/log.h"
#include "proto/ring.h"

namespace ops_debug::analysis {

struct LiveOptions {
  int control_fd = -1;       // closes when the target has ended
  bool tell_no_cuda = true;  // remark on targets that made no driver call
};

// Reads until the target has ended and the ring is drained. `log` may be null. A log that fails
// (disk full) costs the log, not the run: the report says so. What only the consumer knows (losses)
// is added as events of its own.
void RecordLive(proto::RingConsumer& ring, proto::LogWriter* log, const LiveOptions& options,
                EventAnalysis& analysis);

// Reads a whole log; damage becomes remarks. Error: the file is no log.
absl::Status ReadLog(const std::string& path, EventAnalysis& analysis);

}  // namespace ops_debug::analysis
