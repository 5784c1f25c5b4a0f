// The site of a memory instruction: what a report says about the place.
#pragma once

#include <span>

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// `value` is what is known of the address, `array_bytes` the size of the array that it lies in.
Site MakeSite(const ptx::Function& original, const ptx::Instruction& instruction,
              const MemoryAccess& access, const Provenance& provenance, const Value& value,
              uint64_t array_bytes, std::span<const ptx::ParameterLayout> parameters,
              const SourceFrames& frames);

}  // namespace ops_debug::shadow
