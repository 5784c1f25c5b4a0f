// Elements of tensors as double, and back: what inputs are made of and gradients are judged in.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/tensor.h"

namespace ops_debug::analysis {

// Row-major, whatever the strides. Complex numbers by their real part.
std::vector<double> ElementValues(const proto::Tensor& tensor);

// Dense; rounds to nearest even; integers saturate, NaN becomes 0 in them. What is too large for a
// float becomes infinity, in float8_e4m3fn NaN.
proto::Tensor TensorOf(const std::string& name, proto::DType dtype,
                       const std::vector<int64_t>& shape, const std::vector<double>& values);

// Of floating types: the largest finite value and the smallest normal one.
double LargestFinite(proto::DType dtype);
double SmallestNormal(proto::DType dtype);

// "1x32x224x224"; "scalar" for rank 0.
std::string ShapeText(const std::vector<int64_t>& shape);
// "(0, 16, 3, 5)".
std::string PlaceText(const std::vector<int64_t>& index);
// Of element number `element` in row-major order.
std::vector<int64_t> IndexOf(int64_t element, const std::vector<int64_t>& shape);

}  // namespace ops_debug::analysis
