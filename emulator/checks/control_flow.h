// Which way lanes went that are missing where others wait: past the place, or out of the kernel
// before it. Only the control-flow graph can tell `if (i >= n) return; __syncthreads();`, which
// works since Volta, from `if (i < n) __syncthreads(); more work`, which is divergent: in both the
// missing lanes have exited when the barrier completes.
//
// Lanes that left by the exit E went around the place P if there is a basic block Q with work in
// it that lies behind P on every path from P to the end (Q post-dominates P), before E on every
// path from the entry to E (Q dominates E), and from which no path leads back to P: they did work
// that P should have preceded.
// Dominators by iteration over reverse post-order: Cooper, Harvey, Kennedy, "A Simple, Fast
// Dominance Algorithm" (2001).
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/code.h"

namespace ops_debug::emulator {

class ControlFlow {
 public:
  explicit ControlFlow(const Function& function);

  // `place` and `exit` are indices into the function's code.
  bool WentAround(uint32_t place, uint32_t exit) const;

 private:
  static constexpr uint32_t kNone = ~0u;
  using Edges = std::vector<std::vector<uint32_t>>;

  // Immediate dominators from `root`; kNone for what it does not reach.
  static std::vector<uint32_t> Dominators(uint32_t root, const Edges& successors,
                                          const Edges& predecessors);
  static bool Dominates(const std::vector<uint32_t>& immediate, uint32_t a, uint32_t b);
  bool Reaches(uint32_t from, uint32_t to) const;

  std::vector<uint32_t> block_of_;  // by instruction
  std::vector<uint8_t> has_work_;   // by block: memory, calls, synchronisation
  Edges successors_;
  std::vector<uint32_t> dominator_, post_dominator_;
};

}  // namespace ops_debug::emulator
