// From the device's fault channel to Fault events: reads what instrumented
// kernels published and tells the analyzer.
#pragma once

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

// A twin is about to be launched.
void NoteLaunch(const InstancePointer& instance, bool captured);

// True for errors that a kernel caused and that end the context.
bool EndsContext(CUresult result);

}  // namespace ops_debug::interposer
