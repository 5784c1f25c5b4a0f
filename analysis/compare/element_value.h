// One element of a tensor as a number: for samples of positions. The pass over all of memory
// decodes whole blocks instead (compare.h).
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "proto/tensor.h"

namespace ops_debug::analysis {

// The element at an address of any alignment.
std::complex<double> DecodeElement(proto::DType dtype, const std::byte* at);

// Reads elements by index or by position in row-major order, whatever the strides. 64-bit integers
// are rounded to float64. Keeps a reference to the tensor.
class ElementReader {
 public:
  explicit ElementReader(const proto::Tensor& tensor);

  // `index` holds one entry per axis, each within the shape.
  std::complex<double> At(const std::vector<int64_t>& index) const;
  std::complex<double> AtPosition(int64_t position) const;
  // Of row-major order; `index` gets the tensor's rank.
  void Unravel(int64_t position, std::vector<int64_t>* index) const;
  int64_t Ravel(const std::vector<int64_t>& index) const;
  int64_t count() const { return count_; }

 private:
  std::complex<double> AtOffset(int64_t elements) const;

  const proto::Tensor& tensor_;
  std::vector<int64_t> strides_;
  int64_t count_;
};

}  // namespace ops_debug::analysis
