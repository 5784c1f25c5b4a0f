// The second engine: kernels of which there is only machine code (SASS) are checked through
// NVIDIA's Sanitizer API, which patches every memory instruction of a module with a call to our
// device function (shadow/device/sass_patch.cu). That looks the address up in the same shadow
// memory as the first engine's slow path. It reports; it cannot skip an access.
//
// The API's library is loaded at run time if the machine has it. One subscriber at a time: if
// another tool holds the API, or the library is missing, the engine stays off and says why.
//
// A module is patched when a kernel of it is about to run as it is for the first time, or to become
// a node of a graph: so modules of instrumented PTX and the driver's own modules never are. All of
// the module is patched then, whatever launches it: graphs, device code, calls we do not see.
#pragma once

#include <chrono>
#include <string>

#include "interposer/context_state.h"
#include "interposer/driver_table.h"
#include "interposer/fault_drain.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {

// Subscribes at the first call, before the driver is initialised if possible. False: the engine is
// off, see SassEngineObstacle.
bool StartSassEngine();

// Why kernels without PTX are not checked by this engine; empty if they are.
std::string SassEngineObstacle();

// While one lives, modules that the driver loads in this thread are no concern of this engine: they
// hold instrumented PTX or code of our own.
class UnpatchedLoad {
 public:
  UnpatchedLoad();
  ~UnpatchedLoad();
  UnpatchedLoad(const UnpatchedLoad&) = delete;
  UnpatchedLoad& operator=(const UnpatchedLoad&) = delete;
};

// Called before a kernel is launched as it is (no twin). True: its code is patched and this launch
// will be checked; its faults will carry `launch_id`. False: `*reason` says why not.
bool SassEngineCovers(CUfunction function, const ContextPointer& context, CUstream explicit_stream,
                      uint64_t launch_id, std::string* reason);

// Reads the engine's faults of all contexts and sends them as events. Called by DrainFaults.
void DrainSassFaults(DrainDepth depth);
// The engine's part of ReportStandingFaults.
void ReportStandingSassFaults(std::chrono::steady_clock::time_point now,
                              std::chrono::steady_clock::duration patience);

}  // namespace ops_debug::interposer
