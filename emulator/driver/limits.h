// Launch and residency limits that the device model leaves fixed: compute capability 8.0 and 9.0
// agree on them (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#pragma once

#include <cstdint>

#include "emulator/executor.h"

namespace ops_debug::emulator {

inline constexpr int kMaxThreadsPerMultiprocessor = 2048;
inline constexpr int kMaxBlocksPerMultiprocessor = 32;
inline constexpr int kRegistersPerMultiprocessor = 65536;
inline constexpr int kRegisterAllocationUnit = 256;  // per warp
inline constexpr int kWarpSize = 32;
inline constexpr int kReservedSharedBytesPerBlock = 1024;
inline constexpr int kSharedAllocationUnitBytes = 128;

// A block can own all of it but for the part that the system reserves.
inline uint32_t SharedBytesPerMultiprocessor(const DeviceModel& model) {
  return model.shared_bytes_per_block_optin + kReservedSharedBytesPerBlock;
}

}  // namespace ops_debug::emulator
