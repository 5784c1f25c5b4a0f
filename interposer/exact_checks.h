// The CPU device checks races, barriers and uninitialised reads itself, because it sees every
// access: shadow/abi/emulator_checks.h. Here the interposer says what to check, names the memory
// that is its own, and turns what the device finds into events: launch, allocation, stacks and the
// lines of the program's own PTX are known on this side.
#pragma once

#include <cstdint>

#include "shadow/abi/emulator_checks.h"

namespace ops_debug::interposer {

// The device's checks, told at the first call what to look for; null if none were asked for
// (SessionOptions::exact_checks), the driver is not loaded yet, or it offers none (a Diagnostic
// says so). Cheap after the first call.
const shadow::EmulatorChecks* ExactChecks() noexcept;

// True if kernels are rewritten at all: some check that was asked for is made by instrumented code.
bool InstrumentsKernels() noexcept;

// Each does nothing without exact checks. Memory of our own, for as long as it is allocated:
void HideFromChecks(uint64_t address, uint64_t bytes) noexcept;
// A pool of a framework hands out a block, or takes it back: to the driver nothing happened.
void RenewForChecks(uint64_t address, uint64_t bytes) noexcept;
void ForgetForChecks(uint64_t address, uint64_t bytes) noexcept;

// Sends the counts of findings that came so often that they were only counted.
void SendCountedFindings() noexcept;

}  // namespace ops_debug::interposer
