// Launches that the instrumented kernel cannot decide (shadow/passes/undecided.h) are written to
// files, with all the memory that they can read, before the driver gets them; the analyzer has them
// run once more on the CPU device, which decides them exactly. The first launches of each kernel
// and launch shape speak for the others.
//
// Capturing reads the device's memory in the order of the launch's stream and waits for that, but
// never without bound; it never happens while a stream is captured. What is not captured is said,
// with the reason. A launch that may begin before its predecessor has ended (programmatic stream
// serialization) is captured together with the predecessor.
#pragma once

#include <cstdint>
#include <functional>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "shadow/host/stream_clocks.h"

namespace ops_debug::interposer {

struct LaunchRequest;
struct LaunchRecord;

// True if this process captures launches at all.
bool CapturesLaunches() noexcept;

// One launch that is about to be made.
struct LaunchToCapture {
  const LaunchRequest& request;
  const FunctionPointer& function;
  ContextPointer context;                             // null: not captured
  CUstream stream = nullptr;                          // explicit
  bool node = false;                                  // of a graph
  const shadow::SubmittedOperation* order = nullptr;  // null: not known
};

// True if CaptureLaunch has something to do: cheap.
bool NeedsCapture(const LaunchRequest& request, const KernelRecord& kernel) noexcept;

// Returns the capture's number, or 0. The file is complete then. `record` is asked for only if the
// launch, or why it is not captured, is to be told. Never throws.
uint64_t CaptureLaunch(const LaunchToCapture& launch,
                       const std::function<LaunchRecord()>& record) noexcept;

// The parameter buffer as the PTX lays it out. False: the program gives less.
bool PackParameters(const shadow::KernelPlan& plan, const LaunchRequest& request, std::string* out);

// True while a launch is still to be saved (SessionOptions::capture_launch): cheap.
bool SavesLaunch() noexcept;

// Writes this launch to the user's file, for `ops-debug replay`. If it cannot be written, the
// reason is told and the next one is tried. Never throws.
void SaveLaunch(const LaunchToCapture& launch,
                const std::function<LaunchRecord()>& record) noexcept;

// The driver has taken the launch.
void CapturedLaunchSubmitted(uint64_t capture_id, const ContextPointer& context,
                             CUstream explicit_stream) noexcept;

}  // namespace ops_debug::interposer
