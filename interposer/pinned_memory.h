// Memory of the host that devices use directly. What the host does with it is not seen, but some of
// it can be concluded:
//
// - An asynchronous copy from pinned memory reads it when its turn comes. If the contents at the
//   moment when the host learns that the copy is done are not those of the moment when it was
//   submitted, and no operation of a device wrote there, then the host did, too early.
// - Pinned memory that the host gives back must not be in the hands of such a copy any more,
// whether
//   it is the source or the target. (The driver happens to wait; nobody promises it, and a pool of
//   the program's that took the memory back would not.)
// - If no operation of a device wrote to such memory, the host cannot have waited for its contents.
//
// Who really wrote is known to the emulator's checks only (EmulatorChecks::writers). Without them,
// what may have written counts: copies into such memory, kernels that are given a pointer to it or
// may find one, and all work of which the host does not know what it touches. Nothing is concluded
// if some of that was submitted meanwhile, or is not known to be done. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "interposer/stream_order.h"
#include "shadow/host/bounds.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

// Pinned, registered or managed memory came or went.
void NoteHostVisible(uint64_t address, uint64_t bytes);
void ForgetHostVisible(uint64_t address);

// True if an operation of a device may have written to any such memory since the last question.
bool HostVisibleWritten();

// Without the emulator's checks: work was submitted. `accesses` empty: it is not known what it
// touches.
void NoteWorkWrites(std::span<const RangeAccess> accesses, const shadow::OperationId& operation);
// A kernel was; `plan` null: it is not known what it touches.
void NoteKernelWrites(const shadow::KernelPlan* plan, const shadow::LaunchParameters& parameters,
                      const shadow::OperationId& operation);

// The submitted work reads or writes `range` later.
void RememberPinned(const RangeAccess& range, uint64_t token, const shadow::OperationId& operation);
// The host is about to learn, from `api`, that everything up to `point` is done: compares the
// sources of the copies among it, and reports those that changed.
void ComparePinnedSources(const shadow::OrderPoint& point, const char* api);
// The program gives memory back through `api`: reports copies that still use it, as far as the host
// knows (`known`).
void PinnedGivenBack(uint64_t address, uint64_t bytes, const shadow::VectorClock& known,
                     const char* api);

}  // namespace ops_debug::interposer
