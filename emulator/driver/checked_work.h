// What the checks of the CPU device (emulator/checks) hear of the driver's work: operations in
// their order, the memory that they touch, allocations. Configured by the interposer through
// cuOpsDebugEmulatorChecks (shadow/abi/emulator_checks.h); without it nothing here does anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "emulator/checks/checks.h"
#include "emulator/driver/state.h"

namespace ops_debug::emulator {

struct Operation;

// Null: nothing is checked.
extern std::atomic<Checks*> active_checks;
inline Checks* ActiveChecks() { return active_checks.load(std::memory_order_acquire); }

// What the interposer has said of the work that this thread submits; null if nothing.
std::shared_ptr<const DeviceOperation> OrderOfNextWork();

// Around the performing of an operation, without locks. Begin gives it its place in the order of
// operations and tells of what it reads and writes.
void BeginChecked(Checks& checks, Device& device, Operation& operation);
void EndChecked(Checks& checks, Operation& operation);

// New memory, with contents that nobody has written; memory that is gone.
inline void TellAllocated(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) {
    checks->Forget(address, bytes);
    checks->Renew(address, bytes);
  }
}
// Nobody sees what the host writes there itself: it counts as written.
inline void TellHostWritable(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) checks->CountAsWritten(address, bytes);
}
inline void TellReleased(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) checks->Forget(address, bytes);
}

}  // namespace ops_debug::emulator
