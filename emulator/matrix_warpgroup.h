// wgmma: matrix multiplication by a warpgroup, four consecutive warps (PTX ISA 9.0, 9.7.15). Each
// warp computes 16 of the 64 rows when it executes wgmma.mma_async and has its accumulators at
// once. That is one of the orders that the ISA allows, because nobody may change the operands
// before wgmma.wait_group; the wait itself holds until the other three warps have executed the
// multiplications too, since they read the same operands.
#pragma once

#include <string>
#include <vector>

#include "emulator/extended_operation.h"
#include "emulator/matrix_arithmetic.h"
#include "emulator/matrix_fragment.h"
#include "emulator/matrix_multiply.h"

namespace ops_debug::emulator {

class AsyncOrder;

// A matrix in shared memory as its descriptor says (PTX ISA 9.0, 9.7.15.5.1.2). The smallest piece
// is a core matrix: eight times 16 bytes.
struct MatrixDescriptor {
  uint32_t start = 0;         // bytes
  uint32_t leading = 0;       // bytes
  uint32_t stride = 0;        // bytes
  uint32_t base_offset = 0;   // phase of the swizzle pattern, in steps of 128 bytes
  uint32_t swizzle_bits = 0;  // address bits 4.. that are exchanged: 0 (none), 1 (32 bytes), 2, 3

  explicit MatrixDescriptor(uint64_t bits);
  // Shared address of 16 bytes. K-major: those of row `outer` from chunk `chunk` of the depth on;
  // else those of depth `outer` from chunk `chunk` of the rows on.
  uint32_t AddressOf(uint32_t outer, uint32_t chunk, bool k_major) const;
};

class WarpgroupMultiply : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override;  // checks/init_matrix.cc

  MatrixProblem problem;                             // of one warp: 16 rows
  Fragments fragments;                               // likewise; b is not used
  std::vector<Ref> d;                                // accumulators
  std::vector<Ref> a;                                // empty: a lies in shared memory
  Ref a_descriptor = kNoRef, b_descriptor = kNoRef;  // 64-bit lanes
  bool a_k_major = true, b_k_major = true;
  Ref scale_d = kNoRef;  // predicate: false starts from zero
  uint32_t b_depth = 0;
  SparseMetadata metadata;

 private:
  void ReadUndefined(InitCheck& check, Warp& warp, Frame& frame, const Instruction& in,
                     uint32_t lane, bool is_a, std::vector<uint32_t>* origins) const;
  bool ReadShared(Machine& machine, Warp& warp, Frame& frame, uint32_t lane, bool is_a,
                  std::vector<uint32_t>* bits, const AgentWork* work) const;
};

class WarpgroupCommit : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
};

class WarpgroupWait : public ExtendedOperation {
 public:
  explicit WarpgroupWait(uint64_t allowed) : allowed_(allowed) {}
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  bool Ready(const Machine& machine, const Warp& warp, const Split& split) const override;
  std::string WaitsFor(const Machine& machine, const Warp& warp, const Split& split) const override;

 private:
  // The warp of the group that has not executed what `warp` waits for; null if there is none.
  const Warp* Late(const Warp& warp) const;
  uint64_t Needed(const Warp& warp) const;
  void TellDone(AsyncOrder& order, Warp& warp, uint32_t lanes) const;

  uint64_t allowed_;  // groups that may be incomplete
};

}  // namespace ops_debug::emulator
