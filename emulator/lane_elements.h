// One element of each lane between memory and a register (lane_access.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/code.h"

namespace ops_debug::emulator {

// From pointers[lane] + offset into the register at `out`, for `lanes`.
void GatherElement(const MemoryAccess& access, std::byte* const* pointers, size_t offset, void* out,
                   uint32_t lanes);
// From the register at `in` to pointers[lane] + offset.
void ScatterElement(const MemoryAccess& access, std::byte* const* pointers, size_t offset,
                    const void* in, uint32_t lanes);

}  // namespace ops_debug::emulator
