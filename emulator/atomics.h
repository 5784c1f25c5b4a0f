// One atomic read-modify-write of memory, as atom and red perform it for a lane; bulk reductions
// use it for each element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/code.h"

namespace ops_debug::emulator {

// Returns the old value. `b` and `swap` hold the operand's bits. `in_shared`: additions of f64
// treat NaN operands otherwise in shared memory, where hardware composes them, than in global
// memory.
uint64_t ApplyAtomic(AtomicOp operation, ScalarType type, std::byte* p, uint64_t b, uint64_t swap,
                     bool in_shared = false);

}  // namespace ops_debug::emulator
