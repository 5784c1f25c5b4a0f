// mma.sync, mma.sp.sync and wmma.mma: one warp's matrix multiplication from registers to registers.
#pragma once

#include <vector>

#include "emulator/extended_operation.h"
#include "emulator/matrix_arithmetic.h"
#include "emulator/matrix_fragment.h"

namespace ops_debug::emulator {

// Which elements of b meet the stored elements of a sparse a (PTX ISA 9.0, 9.7.14.6). Of each four
// elements two are stored (tf32: of two one; 4-bit types: of four pairs two); metadata holds two
// 2-bit positions for each such chunk.
struct SparseMetadata {
  Ref word = kNoRef;      // 32-bit lanes; kNoRef: a is dense
  uint32_t selector = 0;  // which lanes of each four hold the metadata
};

// Fills b_row[row][j] with the depth of stored element j, for `rows` (16) rows whose metadata the
// 32 lanes of `words` hold. `depth`: of the whole product.
void ReadMetadata(MatrixType type, uint32_t depth, uint32_t selector, const uint32_t* words,
                  std::vector<uint8_t>* b_row);

class MultiplyOperation : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override;  // checks/init_matrix.cc
  bool AccessesMemory() const override { return false; }

  MatrixProblem problem;
  Fragments fragments;
  std::vector<Ref> a, b, c, d;
  SparseMetadata metadata;
};

}  // namespace ops_debug::emulator
