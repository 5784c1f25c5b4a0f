// Who a process is, so that a number that the kernel handed out twice is not taken for the same
// process. Works inside the target: no allocation, no exceptions, no abseil.
#pragma once

#include <cstdint>

namespace ops_debug::proto {

// Start time of process `process_id` in clock ticks since boot (proc(5), `stat` field 22); 0 if
// there is no such process or /proc is not readable.
uint64_t ProcessStartTicks(uint32_t process_id);

// Whether a process with this id and start time still runs. A zombie whose threads are all gone
// counts as gone. Only the bits of `start_ticks_mask` are compared. Errs on the side of "runs".
bool ProcessRuns(uint32_t process_id, uint64_t start_ticks, uint64_t start_ticks_mask = ~0ull);

// Identity of the caller's PID namespace; 0 if /proc does not tell.
uint64_t PidNamespace();

}  // namespace ops_debug::proto
