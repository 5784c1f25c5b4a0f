// Copies as other files need them.
#pragma once

#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

// What the caller says about one side of a copy. kUnified: the driver is to find out.
enum class Side : uint8_t { kHost, kDevice, kUnified };

// One side of a copy: where its box starts and the distance of its rows and slices.
struct BoxSide {
  Side side = Side::kUnified;
  uint64_t address = 0;
  uint64_t pitch_bytes = 0;
  uint64_t slice_bytes = 0;
};

// A copy with the synchronisation that CUDA documents for it (CUDA Driver API, "API synchronization
// behavior"). Not to be called with the driver's lock held.
CUresult CopyBox(const BoxSide& to, const BoxSide& from, uint64_t width_bytes, uint64_t height,
                 uint64_t depth, CUstream stream, bool is_async);

}  // namespace ops_debug::emulator
