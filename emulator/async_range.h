// Checks of the memory that bulk copies, tensor copies and asynchronous stores touch. They happen
// when the instruction is executed, so that an error names it, although the copy comes later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "emulator/lane_operand.h"
#include "emulator/pending_copies.h"
#include "ptx/ir.h"

namespace ops_debug::emulator {

struct AsyncRange {
  Block* block = nullptr;  // whose shared memory it is; null: global
  uint64_t offset = 0;     // in that shared memory
  std::byte* pointer = nullptr;
};

// `bytes` bytes at lane's `address`, aligned to `alignment`; fails the launch with a text that
// begins with `what` ("the source of cp.async.bulk") if they cannot be accessed.
bool FindRange(Machine& machine, Warp& warp, Frame& frame, const AddressOperand& address,
               uint32_t lane, uint64_t bytes, uint32_t alignment, const char* what,
               AsyncRange* range);

// Starts `transfer` into `to`, which completes on `place`; fails if that is no mbarrier of the same
// block.
bool StartOnMbarrier(Machine& machine, Warp& warp, uint32_t lane, const char* name,
                     MbarrierPlace place, const AsyncRange& to, uint32_t bytes,
                     std::unique_ptr<Transfer> transfer);

// .add, .min, ... of a bulk reduction.
std::optional<AtomicOp> ParseReductionOp(const ptx::Instruction& in);

}  // namespace ops_debug::emulator
