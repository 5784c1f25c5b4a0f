// What the launcher tells the processes it starts: names of environment variables and their values.
// One list.
#pragma once

namespace ops_debug::proto {

// Name of the shared-memory segment that holds the event ring (ring.h). Unset: the interposer stays
// passive.
inline constexpr char kEnvRing[] = "OPS_DEBUG_RING";
// Comma-separated checks: "memory", "race", "sync", "init", "precision", "all", "none". "none"
// loads every image untouched; unset: "memory".
inline constexpr char kEnvChecks[] = "OPS_DEBUG_CHECKS";
// "checks" (default): instrument; "null": parse and print PTX, add nothing (for measurements).
inline constexpr char kEnvRewrite[] = "OPS_DEBUG_REWRITE";
// "skip" (default) or "trap".
inline constexpr char kEnvOnError[] = "OPS_DEBUG_ON_ERROR";
// Bytes of freed memory kept in quarantine per context; decimal. Default 256 MiB.
inline constexpr char kEnvQuarantineBytes[] = "OPS_DEBUG_QUARANTINE_BYTES";
// Write each rewritten module to this directory (for debugging ops-debug itself).
inline constexpr char kEnvDumpPtx[] = "OPS_DEBUG_DUMP_PTX";
// Set by the launcher when the target runs on the emulator ("1").
inline constexpr char kEnvEmulator[] = "OPS_DEBUG_EMULATOR";
// Comma-separated models of the emulator's devices ("sm_80", "h100,h100"). Unset: one of sm_90.
inline constexpr char kEnvEmulate[] = "OPS_DEBUG_EMULATE";

// Decimal; the emulator's schedule (emulator/schedule.h). Unset: the default one.
inline constexpr char kEnvScheduleSeed[] = "OPS_DEBUG_SCHEDULE_SEED";

// Which engine checks a kernel: "auto" (default: PTX where there is PTX, SASS otherwise), "ptx",
// "sass".
inline constexpr char kEnvEngine[] = "OPS_DEBUG_ENGINE";
// Folder of the store that maps cubins to the PTX they were made from. Unset: none, in memory only.
inline constexpr char kEnvPtxStore[] = "OPS_DEBUG_PTX_STORE";
// "1" (default): blocks that PyTorch's, CuPy's and RMM's pools hand out have bounds of their own.
// "0": only the pools' segments do.
inline constexpr char kEnvTensors[] = "OPS_DEBUG_TENSORS";
// ECMAScript regular expression that a kernel's mangled or demangled name must contain to be
// checked. Unset: all.
inline constexpr char kEnvKernelName[] = "OPS_DEBUG_KERNEL_NAME";
// Decimal. Per kernel: launches to leave unchecked first, then how many to check (unset: all), and
// check one in N.
inline constexpr char kEnvLaunchSkip[] = "OPS_DEBUG_LAUNCH_SKIP";
inline constexpr char kEnvLaunchCount[] = "OPS_DEBUG_LAUNCH_COUNT";
inline constexpr char kEnvSample[] = "OPS_DEBUG_SAMPLE";
// "1": report memory that is never freed.
inline constexpr char kEnvLeakCheck[] = "OPS_DEBUG_LEAK_CHECK";
// Full path of the interposer library, for children whose environment lost LD_PRELOAD.
inline constexpr char kEnvLibrary[] = "OPS_DEBUG_LIBRARY";
// libsanitizer-public.so of NVIDIA's Sanitizer API, which checks kernels of which there is only
// machine code. Unset: it is looked for (interposer/sass_library.h).
inline constexpr char kEnvSanitizerLibrary[] = "OPS_DEBUG_SANITIZER_LIBRARY";

// Existing folder for captured launches (capture.proto), removed by the launcher. Unset: none are
// captured.
inline constexpr char kEnvReplayFolder[] = "OPS_DEBUG_REPLAY_FOLDER";
// Decimal: most bytes of one capture. Unset: 64 MiB.
inline constexpr char kEnvReplayMemory[] = "OPS_DEBUG_REPLAY_MEMORY";

// Absolute path: the first launch that the filters let through is written there (capture.proto),
// unless the file exists. Unset: none is.
inline constexpr char kEnvCaptureLaunch[] = "OPS_DEBUG_CAPTURE_LAUNCH";

// Regular expression of kernels whose tensors are captured (interposer/tensor_capture.h), and where
// to. Unset: none are.
inline constexpr char kEnvCaptureTensors[] = "OPS_DEBUG_CAPTURE_TENSORS";
inline constexpr char kEnvCaptureFolder[] = "OPS_DEBUG_CAPTURE_FOLDER";
// Decimal: bytes of values that are kept. Unset: 1 GiB.
inline constexpr char kEnvCaptureBytes[] = "OPS_DEBUG_CAPTURE_BYTES";

// "all" (default) or "shared": memory in which instrumented kernels look for races.
inline constexpr char kEnvRaceMemory[] = "OPS_DEBUG_RACE_MEMORY";

// "1": the check "precision" counts every conversion between floating-point types with its loss.
inline constexpr char kEnvPrecisionTrace[] = "OPS_DEBUG_PRECISION_TRACE";

}  // namespace ops_debug::proto
