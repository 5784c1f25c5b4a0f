// Launch and residency limits that the emulated architectures (compute capability 8.x and 9.0)
// agree on: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". What
// differs is in the DeviceModel.
#pragma once

namespace ops_debug::emulator {

inline constexpr int kRegisterAllocationUnit = 256;  // per warp
// A multiprocessor is four equal parts; a warp's registers are in one of them.
inline constexpr int kMultiprocessorParts = 4;
inline constexpr int kWarpSize = 32;
inline constexpr int kReservedSharedBytesPerBlock = 1024;
inline constexpr int kSharedAllocationUnitBytes = 128;

}  // namespace ops_debug::emulator
