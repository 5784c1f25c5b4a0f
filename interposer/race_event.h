// One record of the device's race checks as an event: sites, launches and the allocation that it
// concerns, in the host's words.
#pragma once

#include <cstdint>

#include "interposer/event_sender.h"
#include "shadow/abi/race_abi.h"

namespace ops_debug::interposer {

// Where one of the two was, as far as its ticket says.
struct RacePlace {
  uint32_t ticket = 0;  // 0: nobody
  bool known = false;
  bool is_kernel = true;  // or the host's operation with the token `launch_id`
  uint64_t launch_id = 0;
  uint64_t graph_token = 0;  // a graph's node: of the launch of the graph
  Dim3 block, thread;
};

// Sends a Race or SyncFault event, or a Diagnostic.
void ReportRaceRecord(const shadow::RaceRecord& record, uint64_t count, const RacePlace& first,
                      const RacePlace& second);

}  // namespace ops_debug::interposer
