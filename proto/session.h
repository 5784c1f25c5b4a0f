// What the launcher tells the processes it starts: names of environment variables and their values.
// One list.
#pragma once

namespace ops_debug::proto {

// Name of the shared-memory segment that holds the event ring (ring.h). Unset: the interposer stays
// passive.
inline constexpr char kEnvRing[] = "OPS_DEBUG_RING";
// Comma-separated checks: "memory", "none". "none" loads every image untouched.
inline constexpr char kEnvChecks[] = "OPS_DEBUG_CHECKS";
// "checks" (default): instrument; "null": parse and print PTX, add nothing (for measurements).
inline constexpr char kEnvRewrite[] = "OPS_DEBUG_REWRITE";
// "skip" (default) or "trap".
inline constexpr char kEnvOnError[] = "OPS_DEBUG_ON_ERROR";
// Bytes of freed memory kept in quarantine per context; decimal. Default 256 MiB.
inline constexpr char kEnvQuarantineBytes[] = "OPS_DEBUG_QUARANTINE_BYTES";
// Comma-separated glob patterns of mangled or demangled kernel names to check; unset: all.
inline constexpr char kEnvKernels[] = "OPS_DEBUG_KERNELS";
// "1": write each rewritten module to this directory (for debugging ops-debug itself).
inline constexpr char kEnvDumpPtx[] = "OPS_DEBUG_DUMP_PTX";
// Set by the launcher when the target runs on the emulator ("1").
inline constexpr char kEnvEmulator[] = "OPS_DEBUG_EMULATOR";
// Comma-separated models of the emulator's devices ("sm_80", "h100,h100"). Unset: one of sm_90.
inline constexpr char kEnvEmulate[] = "OPS_DEBUG_EMULATE";

// Decimal; the emulator's schedule (emulator/schedule.h). Unset: the default one.
inline constexpr char kEnvScheduleSeed[] = "OPS_DEBUG_SCHEDULE_SEED";

}  // namespace ops_debug::proto
