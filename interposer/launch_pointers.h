// Before a checked kernel is launched: the memory that its parameters mention, and shadow memory.
#pragma once

#include "interposer/launch_path.h"

namespace ops_debug::interposer {

// Brings shadow memory up to date for a launch of `function` (shadow_updates.h), in particular
// where its parameters point.
void PrepareShadow(ContextState& state, CUstream explicit_stream, const FunctionRecord& function,
                   const LaunchRequest& request);

}  // namespace ops_debug::interposer
