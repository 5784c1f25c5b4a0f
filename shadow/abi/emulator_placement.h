// The contract between ops-debug-replayer and the emulator, for launches that are made again at the
// addresses that they had on another device. The emulator's libcuda.so.1 exports
// kEmulatorPlacementSymbol; the replayer asks for it before cuInit, says that this process is a
// replay, and then uses the ordinary driver API: only where blocks and variables lie goes this way,
// so whoever watches the driver's calls sees what any program does. Plain data and C functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ops_debug::shadow {

inline constexpr uint32_t kEmulatorPlacementVersion = 1;
inline constexpr char kEmulatorPlacementSymbol[] = "cuOpsDebugEmulatorPlacement";

// Why a launch did not come to its end.
enum EmulatorFailure : uint32_t {
  kEmulatorNoFailure = 0,
  kEmulatorUnsupported = 1,  // an instruction that the CPU device lacks
  kEmulatorDeadlock = 2,     // no thread can ever go on
  // The same, but a thread spins on global memory, which another launch or a copy could write.
  kEmulatorGlobalSpin = 3,
  kEmulatorHostWait = 4,  // threads wait for memory that the host can write
  kEmulatorFault = 5,     // an illegal address, a trap, ...
};

struct EmulatorPlacement {
  uint32_t version;
  // Before cuInit. Device memory may then lie anywhere, and a launch that spins is not given time
  // for what the host or another stream might do.
  void (*begin_replay)();
  // Where the next allocation of the calling thread (cuMemAlloc, cuMemHostAlloc) lies: memory that
  // the process has mapped readable and writable. It fails with CUDA_ERROR_OUT_OF_MEMORY if another
  // allocation overlaps.
  void (*place_next_allocation)(uint64_t address);
  // Where a variable of the next module lies that the calling thread loads, likewise mapped.
  void (*place_variable)(const char* name, uint64_t address);
  // Whether a value is the address of a function on this device.
  bool (*is_function)(uint64_t address);
  // Of the first launch that failed: an EmulatorFailure and up to `text_bytes` of explanation,
  // ended by a zero.
  uint32_t (*failure)(char* text, size_t text_bytes);
};
using EmulatorPlacementFunction = const EmulatorPlacement* (*)(uint32_t version);  // null: other

}  // namespace ops_debug::shadow
