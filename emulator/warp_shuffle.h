// Which lane a shuffle reads from.
#pragma once

#include <cstdint>

#include "emulator/code.h"

namespace ops_debug::emulator {

// The lane that `lane` reads from, itself if that lies outside its segment; b and c are the
// instruction's operands (PTX ISA 9.0, shfl.sync), `in_range` the predicate result.
uint32_t SourceLane(ShuffleKind kind, uint32_t lane, uint32_t b, uint32_t c, bool* in_range);

}  // namespace ops_debug::emulator
