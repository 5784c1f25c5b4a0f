// Instructions that move matrices between memory and the registers of a warp: ldmatrix, stmatrix,
// movmatrix, wmma.load and wmma.store.
#pragma once

#include <vector>

#include "emulator/extended_operation.h"
#include "emulator/matrix_fragment.h"

namespace ops_debug::emulator {

struct MatrixAddress {
  Space space = Space::kGeneric;
  Ref base = kNoRef;  // of 64-bit lanes, or 32-bit ones
  bool is_32bit = false;
  int64_t offset = 0;

  uint64_t Of(Frame& frame, uint32_t lane) const;
};

// ldmatrix and stmatrix of 8x8 matrices of 16-bit elements (PTX ISA 9.0, 9.7.14.5.15). Lane i names
// the address of row i % 8 of matrix i / 8; all rows of the first registers.size() matrices count.
class RowsOperation : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override;  // checks/init_matrix.cc

  bool is_store = false;
  bool transpose = false;
  MatrixAddress address;
  std::vector<Ref> registers;  // one per matrix
};

// movmatrix.trans: the transpose of one 8x8 matrix in registers.
class TransposeOperation : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override;  // checks/init_matrix.cc

  Ref source = kNoRef, destination = kNoRef;
};

// wmma.load and wmma.store: a whole matrix with `stride` elements between its rows (columns if
// column-major). The address and the stride are the same in all lanes.
class FragmentCopyOperation : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override;
  void PassDefinedness(InitCheck& check, Warp& warp, Split& split, const Instruction& in,
                       uint32_t active) const override;  // checks/init_matrix.cc

  bool is_store = false;
  bool row_major = true;
  // Of the base address. The ISA asks for 32 bytes; this is what an H200 insists on.
  uint32_t alignment_bytes = 1;
  MatrixAddress address;
  Ref stride = kNoRef;  // 32-bit lanes
  Fragment fragment;
  std::vector<Ref> registers;

 private:
  bool CopyRegister(Machine& machine, Warp& warp, Frame& frame, const Instruction& in,
                    uint32_t index, uint64_t base, uint64_t stride, uint32_t active) const;
};

}  // namespace ops_debug::emulator
