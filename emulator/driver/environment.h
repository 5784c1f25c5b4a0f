// Environment variables through which the launcher speaks to the CPU device. The launcher's names
// for them are in proto/session.h, which this folder does not include; a test compares the two.
#pragma once

namespace ops_debug::emulator {

// Devices to be, separated by commas: "sm_90", "a100,a100". Unset: one device of sm_90.
inline constexpr char kEnvEmulate[] = "OPS_DEBUG_EMULATE";
// Number that picks the schedule. Unset: the default schedule.
inline constexpr char kEnvScheduleSeed[] = "OPS_DEBUG_SCHEDULE_SEED";

}  // namespace ops_debug::emulator
