// Geometry of a tensor copy: which elements of global memory go to which bytes of shared memory
// (PTX ISA 9.0, 5.5 Tensors).
//
// A copy is a list of rows along dimension 0 (channels), which are contiguous in global memory and
// lie one behind the other in shared memory. Tiled mode walks a box; im2col mode walks pixels of a
// bounding box that is given by its corners. Swizzling then permutes 16-byte chunks of shared
// memory by address bits, so it repeats with the address, not with the box.
//
// In the interleaved layouts (NC/8HWC8 and NC/16HWC16) dimension 0 counts pixels (W), each a slice
// of 16 or 32 bytes of channels; the dimension before the last counts such slices, of which a copy
// takes one.
//
// What the ISA leaves open was tried on an H200 (test/golden/cases_tensor_copy.py): the NaN of
// elements outside, rounding to tf32, the pitch of swizzled rows, which coordinates are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/bulk_copy.h"
#include "emulator/pending_copies.h"
#include "emulator/tensor_map.h"

namespace ops_debug::emulator {

struct TensorCoordinates {
  int32_t start[TensorMap::kMaxRank] = {};
  uint16_t offset[3] = {};  // im2col: added to W, H, D when an element is read
};

class TensorBox {
 public:
  TensorBox(const TensorMap& map, const TensorCoordinates& coordinates);

  // Why `map` cannot be used; empty if it can.
  static std::string Check(const TensorMap& map);

  uint64_t bytes() const { return rows_ * row_bytes_; }  // that are copied
  // Of shared memory that the box spans: rows of a swizzled box begin at multiples of the span that
  // the swizzle permutes.
  uint64_t footprint_bytes() const { return (rows_ - 1) * row_pitch_ + row_bytes_; }

  // One row of the copy: elements [first, first + count) of its `row_elements()` lie in the tensor,
  // the first of them at `address`. An element of an interleaved tensor is a slice.
  struct Row {
    uint64_t address = 0;
    uint32_t first = 0;
    uint32_t count = 0;
  };
  Row RowAt(uint64_t index) const;
  uint64_t rows() const { return rows_; }
  uint32_t row_elements() const { return row_elements_; }
  uint32_t row_bytes() const { return row_bytes_; }
  uint32_t element_bytes() const { return element_bytes_; }
  uint32_t step_bytes() const { return element_bytes_ * row_step_; }  // between a row's elements
  const TensorMap& map() const { return map_; }

  // Where byte `column` of row `row` lies in shared memory when the box starts at `base`.
  uint64_t SharedAddress(uint64_t base, uint64_t row, uint64_t column) const;

  // What hardware refuses about the coordinates; empty if nothing.
  std::string CheckCoordinates(bool is_load) const;

 private:
  Row TiledRow(uint64_t index) const;
  Row Im2colRow(uint64_t index) const;
  // The row whose outer coordinates (dimensions 1 and up) are `outer`; nothing of it if those lie
  // outside the tensor.
  Row Clip(const int64_t* outer) const;

  TensorMap map_;
  TensorCoordinates coordinates_;
  uint32_t counts_[TensorMap::kMaxRank] = {1, 1, 1, 1, 1};
  uint32_t element_bytes_ = 0;
  uint32_t row_step_ = 1;  // interleaved: element stride of dimension 0
  uint32_t row_elements_ = 0;
  uint32_t row_bytes_ = 0;
  uint32_t row_pitch_ = 0;
  uint64_t rows_ = 1;
};

// From global to shared memory; elements outside the tensor become zero or NaN.
class TensorLoad : public Transfer {
 public:
  TensorLoad(const TensorBox& box, std::byte* shared, uint64_t base)
      : box_(box), shared_(shared), base_(base) {}
  void Read() override;
  void Write() override;
  void ForEachPiece(const Piece& piece) const override;

 private:
  TensorBox box_;
  std::byte* shared_;  // of the block; `base_` is the destination in it
  uint64_t base_;
  std::vector<std::byte> buffer_;  // the box, not swizzled
};

// From shared to global memory, or a reduction; elements outside the tensor are left out.
class TensorStore : public Transfer {
 public:
  TensorStore(const TensorBox& box, const std::byte* shared, uint64_t base)
      : box_(box), shared_(shared), base_(base) {}
  void Reduce(const Reduction& reduction) {
    reduces_ = true;
    reduction_ = reduction;
  }
  void Read() override;
  void Write() override;
  void ForEachPiece(const Piece& piece) const override;
  bool reduces() const override { return reduces_; }

 private:
  TensorBox box_;
  const std::byte* shared_;
  uint64_t base_;
  bool reduces_ = false;
  Reduction reduction_;
  std::vector<std::byte> buffer_;
};

}  // namespace ops_debug::emulator
