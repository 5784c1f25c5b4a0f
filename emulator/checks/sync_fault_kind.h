// Kinds of synchronisation faults, as proto SyncFault.Kind numbers them.
#pragma once

#include <cstdint>

namespace ops_debug::emulator {

enum SyncFaultKind : uint32_t {
  kDivergentBarrier = 1,
  kExitedThreads = 2,
  kBarrierCount = 3,
  kUninitialisedMbarrier = 4,
  kInvalidMbarrier = 5,
  kDeadlock = 6,
  kWarpMask = 7,
};

}  // namespace ops_debug::emulator
