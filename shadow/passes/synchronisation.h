// What an instruction does to the order of memory accesses. Source: PTX ISA 9.0, 8.2 to 8.9 (memory
// consistency model), 9.7.13 (parallel synchronisation).
#pragma once

#include <cstdint>

#include "ptx/ir.h"

namespace ops_debug::shadow {

enum class Barrier : uint8_t {
  kNone,
  kBlock,      // bar.sync, bar.red of all threads of the block
  kNamed,      // the same with a number of threads
  kNamedOnly,  // bar.arrive: does not wait
  kWarp,       // bar.warp.sync
};

struct BarrierUse {
  Barrier kind = Barrier::kNone;
  uint32_t id_operand = 0, count_operand = 0;  // kNamed, kNamedOnly
  uint32_t mask_operand = 0;                   // kWarp
};
BarrierUse DescribeBarrier(const ptx::Instruction& instruction);

// Index of the operand that names the lanes which execute the instruction together (shfl.sync and
// its like, bar.warp.sync); -1: none does.
int MaskOperandOf(const ptx::Instruction& instruction);

// A set of kOrder... of race_abi.h; 0: the instruction neither is strong nor orders anything.
uint32_t DescribeOrder(const ptx::Instruction& instruction);

// Strength of an access, kWriteWeak, kWriteStrongBlock or kWriteStrong.
uint32_t StrengthOf(const ptx::Instruction& instruction);

}  // namespace ops_debug::shadow
