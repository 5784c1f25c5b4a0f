// A thread that looks at the faults in pinned memory now and then, for programs that do not wait
// for their kernels: a kernel or graph that runs for hours, or a process that is killed (SIGKILL
// leaves no moment to look). It also asks the driver whether captured launches have ended
// (stuck_launches.h), and makes no other driver calls. It starts with the first checked launch,
// when the driver has threads of its own.
#pragma once

namespace ops_debug::interposer {

// Starts the thread unless this process has one. Never throws.
void StartFaultWatch() noexcept;
// For good; returns when the thread looks no more.
void StopFaultWatch() noexcept;

// While one lives the thread does not look: pinned memory is about to go.
class FaultWatchPause {
 public:
  FaultWatchPause();
  ~FaultWatchPause();
  FaultWatchPause(const FaultWatchPause&) = delete;
  FaultWatchPause& operator=(const FaultWatchPause&) = delete;
};

}  // namespace ops_debug::interposer
