// The narrow formats are one function over (exponent bits, mantissa bits): IEEE 754-2019 section
// 3.4, and the OCP 8-bit formats (OFP8 revision 1.0), of which E4M3 has no infinity.
#include "analysis/validate/tensor_values.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

namespace ops_debug::analysis {
namespace {

using proto::DType;

struct NarrowFormat {
  int exponent_bits = 0, mantissa_bits = 0;
  bool has_infinity = true;
  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t ExponentMask() const { return (1u << exponent_bits) - 1; }
  uint32_t MantissaMask() const { return (1u << mantissa_bits) - 1; }
  // Largest finite number's bits.
  uint32_t LargestBits() const {
    const uint32_t infinity = ExponentMask() << mantissa_bits;
    return has_infinity ? infinity - 1 : (infinity | MantissaMask()) - 1;
  }
  uint32_t NanBits() const {
    return has_infinity ? (ExponentMask() << mantissa_bits) | (1u << (mantissa_bits - 1))
                        : (ExponentMask() << mantissa_bits) | MantissaMask();
  }
  uint32_t OverflowBits() const {
    return has_infinity ? ExponentMask() << mantissa_bits : NanBits();
  }
};

const NarrowFormat* FormatOf(DType dtype) {
  static constexpr NarrowFormat kHalf{5, 10}, kBfloat{8, 7}, kE4M3{4, 3, false}, kE5M2{5, 2};
  switch (dtype) {
    case DType::kFloat16:
      return &kHalf;
    case DType::kBfloat16:
      return &kBfloat;
    case DType::kFloat8E4M3:
      return &kE4M3;
    case DType::kFloat8E5M2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

double FromNarrow(const NarrowFormat& format, uint32_t bits) {
  const uint32_t sign = bits >> (format.exponent_bits + format.mantissa_bits);
  const uint32_t exponent = (bits >> format.mantissa_bits) & format.ExponentMask();
  const uint32_t mantissa = bits & format.MantissaMask();
  const uint32_t magnitude = (exponent << format.mantissa_bits) | mantissa;
  double value = 0;
  if (magnitude > format.LargestBits()) {
    const bool infinite = format.has_infinity && mantissa == 0;
    value = infinite ? std::numeric_limits<double>::infinity()
                     : std::numeric_limits<double>::quiet_NaN();
  } else {
    const double fraction = mantissa + (exponent == 0 ? 0 : double{1} + format.MantissaMask());
    const int power = std::max(static_cast<int>(exponent), 1) - format.Bias();
    value = std::ldexp(fraction, power - format.mantissa_bits);
  }
  return sign != 0 ? -value : value;
}

uint32_t ToNarrow(const NarrowFormat& format, double value) {
  const uint32_t sign = (std::signbit(value) ? 1u : 0u)
                        << (format.exponent_bits + format.mantissa_bits);
  if (std::isnan(value)) return sign | format.NanBits();
  if (std::isinf(value)) return sign | format.OverflowBits();
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int power = std::max(exponent - 1, 1 - format.Bias());
  // In units of the last place, rounded to even; a carry into the exponent is what the sum does.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - power));
  const double hidden = double{1} + format.MantissaMask();
  if (units < hidden) return sign | static_cast<uint32_t>(units);
  const double bits =
      std::ldexp(double(power + format.Bias()), format.mantissa_bits) + units - hidden;
  return sign | (bits > format.LargestBits() ? format.OverflowBits() : static_cast<uint32_t>(bits));
}

template <class T>
T Load(const std::byte* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

template <class T>
void StoreInteger(double value, std::byte* place) {
  using Limits = std::numeric_limits<T>;
  T stored = 0;
  if (value >= static_cast<double>(Limits::max())) {
    stored = Limits::max();
  } else if (value <= static_cast<double>(Limits::min())) {
    stored = Limits::min();
  } else if (!std::isnan(value)) {
    stored = static_cast<T>(value);
  }
  std::memcpy(place, &stored, sizeof stored);
}

template <class T>
void StoreFloat(double value, std::byte* place) {
  const T stored = static_cast<T>(value);
  std::memcpy(place, &stored, sizeof stored);
}

double LoadElement(DType dtype, const std::byte* place) {
  if (const NarrowFormat* format = FormatOf(dtype)) {
    return FromNarrow(
        *format, proto::ElementBytes(dtype) == 1 ? Load<uint8_t>(place) : Load<uint16_t>(place));
  }
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
      return Load<uint8_t>(place);
    case DType::kInt8:
      return Load<int8_t>(place);
    case DType::kInt16:
      return Load<int16_t>(place);
    case DType::kUint16:
      return Load<uint16_t>(place);
    case DType::kInt32:
      return Load<int32_t>(place);
    case DType::kUint32:
      return Load<uint32_t>(place);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(place));
    case DType::kUint64:
      return static_cast<double>(Load<uint64_t>(place));
    case DType::kFloat64:
    case DType::kComplex128:
      return Load<double>(place);
    default:
      return Load<float>(place);
  }
}

void StoreElement(DType dtype, double value, std::byte* place) {
  if (const NarrowFormat* format = FormatOf(dtype)) {
    const uint32_t bits = ToNarrow(*format, value);
    std::memcpy(place, &bits, proto::ElementBytes(dtype));  // little-endian
    return;
  }
  switch (dtype) {
    case DType::kBool:
      return StoreInteger<uint8_t>(value != 0 ? 1 : 0, place);
    case DType::kUint8:
      return StoreInteger<uint8_t>(value, place);
    case DType::kInt8:
      return StoreInteger<int8_t>(value, place);
    case DType::kInt16:
      return StoreInteger<int16_t>(value, place);
    case DType::kUint16:
      return StoreInteger<uint16_t>(value, place);
    case DType::kInt32:
      return StoreInteger<int32_t>(value, place);
    case DType::kUint32:
      return StoreInteger<uint32_t>(value, place);
    case DType::kInt64:
      return StoreInteger<int64_t>(value, place);
    case DType::kUint64:
      return StoreInteger<uint64_t>(value, place);
    case DType::kFloat64:
    case DType::kComplex128:
      return StoreFloat<double>(value, place);
    default:
      return StoreFloat<float>(value, place);
  }
}

}  // namespace

std::vector<double> ElementValues(const proto::Tensor& tensor) {
  const int64_t count = tensor.ElementCount();
  std::vector<double> values(static_cast<size_t>(count));
  const int64_t bytes = proto::ElementBytes(tensor.dtype);
  if (tensor.IsDense()) {
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = LoadElement(tensor.dtype, tensor.data + i * bytes);
    }
    return values;
  }
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t offset = 0;  // in elements
  for (double& value : values) {
    value = LoadElement(tensor.dtype, tensor.data + offset * bytes);
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      offset -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
  return values;
}

proto::Tensor TensorOf(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                       const std::vector<double>& values) {
  const size_t bytes = proto::ElementBytes(dtype);
  auto contents = std::make_shared<std::vector<std::byte>>(values.size() * bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, values[i], contents->data() + i * bytes);
  }
  return {.name = name,
          .dtype = dtype,
          .shape = shape,
          .strides = {},
          .data = contents->data(),
          .owner = contents};
}

double LargestFinite(DType dtype) {
  if (const NarrowFormat* format = FormatOf(dtype)) {
    return FromNarrow(*format, format->LargestBits());
  }
  const bool wide = dtype == DType::kFloat64 || dtype == DType::kComplex128;
  return wide ? std::numeric_limits<double>::max() : double{std::numeric_limits<float>::max()};
}

double SmallestNormal(DType dtype) {
  if (const NarrowFormat* format = FormatOf(dtype)) return std::ldexp(1.0, 1 - format->Bias());
  const bool wide = dtype == DType::kFloat64 || dtype == DType::kComplex128;
  return wide ? std::numeric_limits<double>::min() : double{std::numeric_limits<float>::min()};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

std::string PlaceText(const std::vector<int64_t>& index) {
  return absl::StrCat("(", absl::StrJoin(index, ", "), ")");
}

std::vector<int64_t> IndexOf(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] <= 0) continue;
    index[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return index;
}

}  // namespace ops_debug::analysis
