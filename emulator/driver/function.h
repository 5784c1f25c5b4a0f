// Attributes and residency of a function.
#pragma once

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

const KernelAttributes& Attributes(const CUfunc_st& function);

// Blocks of `block_threads` threads that one multiprocessor can hold at a time (CUDA C++ Best
// Practices Guide, "Calculating Occupancy"): the tightest of the limits on threads, blocks,
// registers and shared memory.
int ResidentBlocks(const DeviceModel& model, const CUfunc_st& function, int block_threads,
                   size_t dynamic_shared_bytes);

}  // namespace ops_debug::emulator
