// Running a submitted kernel.
#pragma once

#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

// Runs the grid to its end on the calling thread and its helpers. A fault is said on stderr and
// returned as the error that a GPU leaves in the context.
CUresult RunKernel(Device& device, const KernelOperation& kernel);

}  // namespace ops_debug::emulator
