// What a schedule seed decides.
//
// Rare interleavings need different ways of looking: half of the seeds walk at random, the others
// give every warp a priority and lower that of the running one at a few random points (Burckhardt,
// Kothari, Musuvathi, Nagarakatti: A randomized scheduler with probabilistic guarantees of finding
// bugs, ASPLOS 2010). Lengths of slices, the strength of weak-memory effects, the number of
// resident blocks and the order in which they start vary with the seed as well.
#pragma once

#include <cstdint>

#include "emulator/random.h"
#include "emulator/weak_memory.h"

namespace ops_debug::emulator {

// The seed of the `launch`-th launch of a process whose seed is `seed`; 0 stays 0.
uint64_t SeedOfLaunch(uint64_t seed, uint64_t launch);

struct Schedule {
  explicit Schedule(uint64_t seed);

  Random random;
  bool by_priority = false;
  uint32_t mean_slice = 1;       // memory accesses, synchronising instructions and backward jumps
  uint32_t mean_demotion = 1;    // by_priority: slices until the running warp's priority falls
  uint32_t split_chance = 0;     // of 256: a warp's memory access is made by some lanes first
  uint64_t resident_blocks = 1;  // that are started without need
  bool in_order = false;         // blocks start in the order of their numbers
  Weakness weakness;

  // Events until the running warp must give way.
  int64_t NextSlice() { return static_cast<int64_t>(random.Geometric(mean_slice)); }
};

}  // namespace ops_debug::emulator
