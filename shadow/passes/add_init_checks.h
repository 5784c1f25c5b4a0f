// Finds reads of global memory that nobody has written since it was allocated (device_abi.h: one
// bit for each byte). Every store and atomic clears the bits of what it writes; a load is tested
// only if its value certainly comes to matter (value_uses.h), and is reported only where a whole
// element was never written: padding and masked tails are read all the time. Runs on a twin behind
// the checks of memory, and leaves alone what other passes added.
//
// Loads through a pointer parameter whose allocation the host knows to be wholly written are not
// tested (InitPlan::slots). Stores always are, wherever they go: a byte that counts as unwritten
// though it was written would be a false alarm.
//
// Declared shared arrays have their bits in shared memory (one for each byte, set by the writer,
// cleared by the block when it begins), unless something in the module writes shared memory in a
// way that is not understood here.
//
// Not followed: values that pass through shared or local memory or other lanes, asynchronous copies
// from global memory, tensor-core operands. Dynamic shared memory and local memory have no bits.
// The CPU device follows all of them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// Of the launch parameter, for InitPlan::slots.
inline constexpr uint32_t kWrittenBytes = 8;

// What is known of a module before anything is added to it.
struct InitFacts {
  // Of the array of bits for shared memory; 0: reads of shared memory are not checked.
  uint32_t shared_bits_bytes = 0;
  bool a_function_uses_shared = false;  // that is no entry
  // Entries that write shared memory in ways that are not understood.
  std::set<std::string_view> unfit;
};
InitFacts ReadInitFacts(const ptx::Module& module);
// Declares the array of bits; empty if there is none.
std::string SharedBitsText(const InitFacts& facts);

ptx::Result<InitPlan> AddInitChecks(ptx::Module& module, const Twin& twin, const InitFacts& facts,
                                    const SourceFrames& frames, std::vector<Site>* sites);

}  // namespace ops_debug::shadow
