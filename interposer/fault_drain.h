// From the device's fault channel to Fault events: reads what instrumented
// kernels published and tells the analyzer.
#pragma once

#include <chrono>
#include <cstdint>

#include "interposer/context_state.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {

enum class DrainDepth : uint8_t {
  kPublished,  // some stream has been waited for: report what is new, kernels
               // may still run
  kIdle,       // nothing runs in the given context: also start afresh there, so that
               // later launches report anew
  kFinal,      // also counters and summaries, of all modules: before something ends
  kHostOnly,   // the driver is gone: pinned memory only
};

// Cheap if nothing was launched since the last idle drain. Never throws.
void DrainFaults(DrainDepth depth, CUcontext idle_context = nullptr) noexcept;

// Reports what has been there for longer than `patience` without a drain: faults of a kernel or
// graph that runs for long. Host memory only, no driver calls. False: nothing was launched.
bool ReportStandingFaults(std::chrono::steady_clock::time_point now,
                          std::chrono::steady_clock::duration patience);
// The context is gone, and the pinned memory of its modules with it.
void ForgetLaunched(CUcontext context);

// A twin is about to be launched.
void NoteLaunch(const InstancePointer& instance, bool captured);

// True for errors that a kernel caused and that end the context.
bool EndsContext(CUresult result);

}  // namespace ops_debug::interposer
