// Consecutive elements of a tensor, in row-major order whatever its strides, as float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/tensor.h"

namespace ops_debug::analysis {

// Room for one chunk of elements of both tensors; 64-bit integers keep their difference exact.
struct ChunkValues {
  std::vector<double> real[2],
      imag[2];                     // candidate, reference; imag is used for complex types only
  std::vector<double> difference;  // candidate - reference, of real numbers
  bool complex = false;
};

// Keeps a reference to both tensors, which have the same shape.
class ChunkReader {
 public:
  ChunkReader(const proto::Tensor& candidate, const proto::Tensor& reference);

  // Elements [begin, begin + count) in row-major order.
  void Read(int64_t begin, int64_t count, ChunkValues* out) const;
  // The first byte of element `begin`, if elements follow each other without gaps; else null.
  const std::byte* Dense(int side, int64_t begin) const;
  int64_t Bytes(int64_t count) const {  // of so many elements of the candidate
    return count * int64_t{proto::ElementBytes(sides_[0].tensor->dtype)};
  }

 private:
  struct Side {
    const proto::Tensor* tensor = nullptr;
    std::vector<int64_t> shape, strides;
    bool dense = false;
  };
  template <class Visit>
  static void ForEachRun(const Side& side, int64_t begin, int64_t count, Visit visit);

  Side sides_[2];
  bool exact_integers_ = false;
};

}  // namespace ops_debug::analysis
