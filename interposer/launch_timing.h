// How long kernels run on the GPU, sampled: so that the report can say how much of the GPU's time
// was checked, not only how many launches.
//
// A measured launch is bracketed by two events in its stream (CUDA Driver API, "Event Management":
// resolution about 0.5 us). The first three launches of a kernel are measured and then one in 64;
// the report estimates a kernel's time as mean times launches. On an idle stream the time between
// the events holds the launch call itself, milliseconds if it loads code: it is taken off. A
// checked launch is measured with its checks. So it is an estimate, and the report says so.
//
// Never measured: launches into a capture (events would become nodes of the graph). Kernels in
// graph replays count with the mean of their launches outside of graphs or, if there are none, as
// not timed. A graph launch as a whole is not measured: its time could not be told apart by kernel,
// and dividing it evenly would invent numbers.
//
// Nothing blocks: pairs of events come from a bounded pool, and are read at drains once both have
// happened.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "interposer/driver_table.h"

namespace ops_debug::interposer {

struct LoadedModule;  // module_registry.h
struct KernelRecord;

// Times of one kernel; a member of its record.
struct KernelTiming {
  std::atomic<uint64_t> launches{0};  // asked about
  // Since the last summary (launch_record.h takes and clears them).
  std::atomic<uint64_t> timed_launches{0};
  std::atomic<uint64_t> timed_duration_ns{0};
};

// Brackets one launch:
//
//   LaunchTimer timer(module, kernel, stream, capturing);
//   const CUresult result = go(...);
//   if (result == CUDA_SUCCESS) timer.Finish();
class LaunchTimer {
 public:
  // `stream` is explicit (ExplicitStream).
  LaunchTimer(const std::shared_ptr<LoadedModule>& module, KernelRecord& kernel, CUstream stream,
              bool capturing);
  // Without Finish the launch counts as not measured.
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;
  // Right after the launch, in the same thread.
  void Finish();

 private:
  struct Pending;
  friend struct LaunchTimes;
  std::unique_ptr<Pending> pending_;  // null: not measured
};

// Reads the pairs that have happened, and puts their kernels on the list of summaries. Called at
// drains, before summaries are sent; one atomic load if none is outstanding. Never throws.
void HarvestLaunchTimes() noexcept;

// Called before a context ends: destroys our events in it.
void ForgetLaunchTimes(CUcontext context);

}  // namespace ops_debug::interposer
