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

struct IntervalMeeting {
  // A read, and no write that might touch the same array is in an interval with it.
  bool unraced = false;
  // Accesses with different numbers cannot conflict: no interval holds both, or they are in
  // different arrays, or both read.
  uint32_t group = 0;
};

// For each access. If the barriers cannot be told to be passed alike, or the function calls others,
// nothing is unraced and the groups are those of the arrays.
std::vector<IntervalMeeting> FindMeetings(const ptx::Function& function,
                                          std::span<const IntervalAccess> accesses);

}  // namespace ops_debug::shadow
