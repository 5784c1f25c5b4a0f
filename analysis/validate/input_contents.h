// What inputs hold. The same numbers on every machine for the same seed: a counter-based generator
// (splitmix64's finaliser, Steele et al., OOPSLA 2014) per input and element, and no function of
// the C library that rounds differently elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/tensor.h"

namespace ops_debug::analysis {

// One input of one case, before it has elements.
struct InputPlan {
  std::string name;
  std::vector<int64_t> shape;
  proto::DType dtype = proto::DType::kFloat32;
  // "random"; "positive": (0, 1]; "zeros", "ones", "iota", "nan" (a few of them), "large", "tiny",
  // "denormal", "mixed" (magnitudes over many powers of two); "index:N": integers below N;
  // a number: all elements.
  std::string contents = "random";
  bool differentiable = true;
  bool fixed = false;   // contents were asked for: a sweep leaves them
  proto::Tensor given;  // from a file, if it has a name
};

// Whether `contents` is one of the above.
bool IsContents(const std::string& contents);

// `number`: which input it is, so that inputs differ.
std::vector<double> MakeContents(const InputPlan& input, uint64_t number, uint64_t seed);

// Uniform in [0, 1), of element `element` of stream `stream`.
double UniformAt(uint64_t seed, uint64_t stream, uint64_t element);

}  // namespace ops_debug::analysis
