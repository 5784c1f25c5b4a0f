// The 8- and 16-bit formats are widened by their bits (IEEE 754 binary16; bfloat16 is the upper
// half of binary32; OCP 8-bit Floating Point Specification, table 1).
#include "analysis/compare/element_value.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ops_debug::analysis {
namespace {

using proto::DType;

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// A small float: sign, `exponent_bits`, `mantissa_bits`. `infinities`: the largest exponent is kept
// for infinity and NaN; else only all ones is NaN (e4m3fn).
double SmallFloat(uint32_t bits, int exponent_bits, int mantissa_bits, bool infinities) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
  const uint32_t top = (1u << exponent_bits) - 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == top) {
    const bool all_ones = mantissa == (1u << mantissa_bits) - 1;
    if (infinities ? mantissa != 0 : all_ones) return std::numeric_limits<double>::quiet_NaN();
    if (infinities) return sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa | (1u << mantissa_bits),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

}  // namespace

std::complex<double> DecodeElement(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kBool:
      return Load<uint8_t>(at) != 0 ? 1 : 0;
    case DType::kInt8:
      return Load<int8_t>(at);
    case DType::kUint8:
      return Load<uint8_t>(at);
    case DType::kInt16:
      return Load<int16_t>(at);
    case DType::kUint16:
      return Load<uint16_t>(at);
    case DType::kInt32:
      return Load<int32_t>(at);
    case DType::kUint32:
      return Load<uint32_t>(at);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kUint64:
      return static_cast<double>(Load<uint64_t>(at));
    case DType::kFloat8E4M3:
      return SmallFloat(Load<uint8_t>(at), 4, 3, false);
    case DType::kFloat8E5M2:
      return SmallFloat(Load<uint8_t>(at), 5, 2, true);
    case DType::kFloat16:
      return SmallFloat(Load<uint16_t>(at), 5, 10, true);
    case DType::kBfloat16:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(at)} << 16);
    case DType::kTf32:
    case DType::kFloat32:
      return Load<float>(at);
    case DType::kFloat64:
      return Load<double>(at);
    case DType::kComplex64:
      return {Load<float>(at), Load<float>(at + 4)};
    case DType::kComplex128:
      return {Load<double>(at), Load<double>(at + 8)};
  }
  return 0;
}

ElementReader::ElementReader(const proto::Tensor& tensor)
    : tensor_(tensor), strides_(tensor.strides), count_(tensor.ElementCount()) {
  if (!strides_.empty()) return;
  strides_.resize(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= tensor.shape[i];
  }
}

std::complex<double> ElementReader::AtOffset(int64_t elements) const {
  return DecodeElement(
      tensor_.dtype,
      tensor_.data + elements * static_cast<int64_t>(proto::ElementBytes(tensor_.dtype)));
}

std::complex<double> ElementReader::At(const std::vector<int64_t>& index) const {
  int64_t offset = 0;
  for (size_t i = 0; i < strides_.size(); ++i) offset += index[i] * strides_[i];
  return AtOffset(offset);
}

std::complex<double> ElementReader::AtPosition(int64_t position) const {
  int64_t offset = 0;
  for (size_t i = strides_.size(); i-- > 0;) {
    offset += position % tensor_.shape[i] * strides_[i];
    position /= tensor_.shape[i];
  }
  return AtOffset(offset);
}

void ElementReader::Unravel(int64_t position, std::vector<int64_t>* index) const {
  index->resize(tensor_.shape.size());
  for (size_t i = tensor_.shape.size(); i-- > 0;) {
    (*index)[i] = position % tensor_.shape[i];
    position /= tensor_.shape[i];
  }
}

int64_t ElementReader::Ravel(const std::vector<int64_t>& index) const {
  int64_t position = 0;
  for (size_t i = 0; i < tensor_.shape.size(); ++i) {
    position = position * tensor_.shape[i] + index[i];
  }
  return position;
}

}  // namespace ops_debug::analysis
