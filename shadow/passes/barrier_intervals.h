// Which accesses to shared memory can be between the same two barriers, seen from the text.
//
// If all threads of a block pass the same barriers in the same order, then at any moment they are
// in one interval: behind one barrier of the text (or the start) and before the next ones. Two
// accesses that no interval holds both of are ordered, so an array that an interval only reads
// cannot race there. That is the two-thread view of barrier intervals as in Li & Gopalakrishnan
// (FSE 2010); that the barriers are passed alike follows from the branches that they depend on:
// none may depend on what differs between threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::shadow {

// An access to shared memory, or one that may be to it.
struct IntervalAccess {
  uint32_t statement = 0;  // index in the function's body
  int64_t array = -1;      // what it lies in; -1: not known, may be any
  bool writes = false;
};

// For each access: no write of another instruction, nor of its own, is in an interval with it that
// might touch the same array. Only reads can be so. All false if the barriers cannot be told to be
// passed alike, or the function calls others.
std::vector<bool> FindUnracedReads(const ptx::Function& function,
                                   std::span<const IntervalAccess> accesses);

}  // namespace ops_debug::shadow
