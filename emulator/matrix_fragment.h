// Which element of a matrix each register of each lane holds.
//
// All fragments of mma, wmma and wgmma are made of 8-row tiles: in a tile that lies along the rows,
// lane l holds row l / 4 and the elements that fill one register from position l % 4 on (PTX ISA
// 9.0, 9.7.14.5). Of wmma the ISA keeps the layout open; this is the layout of sm_80 to sm_90, read
// out on an H200 (programs do rely on it).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/machine.h"
#include "emulator/matrix_format.h"

namespace ops_debug::emulator {

class Fragment {
 public:
  Fragment() = default;
  Fragment(MatrixType type, uint32_t rows, uint32_t columns)
      : type_(type), rows_(rows), columns_(columns) {}

  MatrixType type() const { return type_; }
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }
  size_t size() const { return static_cast<size_t>(rows_) * columns_; }
  uint32_t registers() const {
    return static_cast<uint32_t>(place_.size() / (kWarpLanes * Elements()));
  }
  uint32_t Elements() const { return BitsOf(type_) >= 32 ? 1 : 32 / BitsOf(type_); }
  // Row-major index of an element.
  uint32_t Place(uint32_t reg, uint32_t lane, uint32_t element) const {
    return place_[(reg * kWarpLanes + lane) * Elements() + element];
  }
  void Add(uint32_t row, uint32_t column) {
    place_.push_back(static_cast<uint16_t>(row * columns_ + column));
  }
  // Adds the tile whose first element is (row, column), for one register: lane l starts at
  // `first` + l % 4 * `step` along the tile. `along_rows`: a lane's elements lie in one row.
  void AddTile(uint32_t row, uint32_t column, uint32_t first, uint32_t step, bool along_rows);
  // Appends the registers once more until there are `count`: wmma's copies.
  void RepeatTo(uint32_t count);
  // The depth in another order, for instructions that the hardware splits: position of k is
  // order(k). `is_a`: the depth is the column.
  template <class Order>
  void Reorder(bool is_a, Order order) {
    for (uint16_t& place : place_) {
      const uint32_t row = place / columns_;
      const uint32_t column = place % columns_;
      place = static_cast<uint16_t>(is_a ? row * columns_ + order(column)
                                         : order(row) * columns_ + column);
    }
  }

  // Elements of the first registers.size() registers, one per word, row-major; 64-bit elements as
  // doubles.
  void Gather(Frame& frame, std::span<const Ref> registers, std::vector<uint32_t>* bits) const;
  void Gather(Frame& frame, std::span<const Ref> registers, std::vector<double>* values) const;
  // The reverse, in the lanes of `active`, for the types of accumulators.
  void Scatter(Machine& machine, Frame& frame, std::span<const Ref> registers,
               const std::vector<uint32_t>& bits, uint32_t active) const;
  void Scatter(Machine& machine, Frame& frame, std::span<const Ref> registers,
               const std::vector<double>& values, uint32_t active) const;

 private:
  MatrixType type_ = MatrixType::kF16;
  uint32_t rows_ = 0, columns_ = 0;
  std::vector<uint16_t> place_;  // [register][lane][element]
};

struct Fragments {
  Fragment a, b, c, d;
};

// Of a multiplication m x n x k whose matrices a and b have the types given; c and d may differ in
// type. `depth_a`: columns of a if it is sparse, else 0.
Fragments MakeFragments(MatrixShape shape, MatrixType a, MatrixType b, MatrixType c, MatrixType d,
                        uint32_t depth_a = 0);

// mma.m8n8k4 of f16: four independent multiplications, one per eight lanes (PTX ISA 9.0,
// 9.7.14.5.1). Rows of a, c and d and columns of b are those of the first, the second...
Fragments MakeQuadFragments(bool a_is_row, bool b_is_row, MatrixType c, MatrixType d);

}  // namespace ops_debug::emulator
