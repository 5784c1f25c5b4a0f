// One loop per type; elements that lie in a row of the last axis are read in one go.
#include "analysis/compare/chunk_reader.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "analysis/compare/element_value.h"

namespace ops_debug::analysis {
namespace {

using proto::DType;

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// All values of an 8- or 16-bit format.
template <class Bits>
const std::vector<double>& TableOf(DType dtype) {
  static const auto make = [](DType type) {
    std::vector<double> table(size_t{1} << (8 * sizeof(Bits)));
    for (size_t i = 0; i < table.size(); ++i) {
      const auto bits = static_cast<Bits>(i);
      table[i] = DecodeElement(type, reinterpret_cast<const std::byte*>(&bits)).real();
    }
    return table;
  };
  static const std::vector<double> kFirst =
      make(sizeof(Bits) == 1 ? DType::kFloat8E4M3 : DType::kFloat16);
  static const std::vector<double> kSecond =
      make(sizeof(Bits) == 1 ? DType::kFloat8E5M2 : DType::kBfloat16);
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat16 ? kFirst : kSecond;
}

template <class T>
void Widen(const std::byte* from, int64_t step_bytes, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(Load<T>(from + i * step_bytes));
}

template <class Bits>
void LookUp(DType dtype, const std::byte* from, int64_t step_bytes, int64_t count, double* to) {
  const double* const table = TableOf<Bits>(dtype).data();
  for (int64_t i = 0; i < count; ++i) to[i] = table[Load<Bits>(from + i * step_bytes)];
}

void Decode(DType dtype, const std::byte* from, int64_t step_bytes, int64_t count, double* real,
            double* imag) {
  switch (dtype) {
    case DType::kBool:
      for (int64_t i = 0; i < count; ++i) real[i] = Load<uint8_t>(from + i * step_bytes) != 0;
      return;
    case DType::kInt8:
      return Widen<int8_t>(from, step_bytes, count, real);
    case DType::kUint8:
      return Widen<uint8_t>(from, step_bytes, count, real);
    case DType::kInt16:
      return Widen<int16_t>(from, step_bytes, count, real);
    case DType::kUint16:
      return Widen<uint16_t>(from, step_bytes, count, real);
    case DType::kInt32:
      return Widen<int32_t>(from, step_bytes, count, real);
    case DType::kUint32:
      return Widen<uint32_t>(from, step_bytes, count, real);
    case DType::kInt64:
      return Widen<int64_t>(from, step_bytes, count, real);
    case DType::kUint64:
      return Widen<uint64_t>(from, step_bytes, count, real);
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return LookUp<uint8_t>(dtype, from, step_bytes, count, real);
    case DType::kFloat16:
    case DType::kBfloat16:
      return LookUp<uint16_t>(dtype, from, step_bytes, count, real);
    case DType::kTf32:
    case DType::kFloat32:
      return Widen<float>(from, step_bytes, count, real);
    case DType::kFloat64:
      return Widen<double>(from, step_bytes, count, real);
    case DType::kComplex64:
      Widen<float>(from, step_bytes, count, real);
      return Widen<float>(from + sizeof(float), step_bytes, count, imag);
    case DType::kComplex128:
      Widen<double>(from, step_bytes, count, real);
      return Widen<double>(from + sizeof(double), step_bytes, count, imag);
  }
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }
bool IsWideInteger(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kUint64; }

__int128 WideInteger(DType dtype, const std::byte* at) {
  return dtype == DType::kInt64 ? static_cast<__int128>(Load<int64_t>(at))
                                : static_cast<__int128>(Load<uint64_t>(at));
}

}  // namespace

ChunkReader::ChunkReader(const proto::Tensor& candidate, const proto::Tensor& reference) {
  const proto::Tensor* const tensors[] = {&candidate, &reference};
  for (int i = 0; i < 2; ++i) {
    Side& side = sides_[i];
    side.tensor = tensors[i];
    side.dense = tensors[i]->IsDense();
    side.shape = tensors[i]->shape;
    side.strides = tensors[i]->strides;
    if (side.strides.empty()) {
      side.strides.resize(side.shape.size());
      int64_t stride = 1;
      for (size_t axis = side.shape.size(); axis-- > 0;) {
        side.strides[axis] = stride;
        stride *= side.shape[axis];
      }
    }
  }
  exact_integers_ = IsWideInteger(candidate.dtype) && IsWideInteger(reference.dtype);
}

const std::byte* ChunkReader::Dense(int side, int64_t begin) const {
  const Side& from = sides_[side];
  if (!from.dense) return nullptr;
  return from.tensor->data + begin * int64_t{proto::ElementBytes(from.tensor->dtype)};
}

// Calls visit(address of the first, bytes between two, how many, how many were before).
template <class Visit>
void ChunkReader::ForEachRun(const Side& side, int64_t begin, int64_t count, Visit visit) {
  const int64_t bytes = proto::ElementBytes(side.tensor->dtype);
  if (side.dense || side.shape.empty()) {
    visit(side.tensor->data + begin * bytes, bytes, count, int64_t{0});
    return;
  }
  const size_t last = side.shape.size() - 1;
  for (int64_t done = 0; done < count;) {
    int64_t position = begin + done, offset = 0;
    const int64_t column = position % side.shape[last];
    for (size_t axis = side.shape.size(); axis-- > 0;) {
      offset += position % side.shape[axis] * side.strides[axis];
      position /= side.shape[axis];
    }
    const int64_t run = std::min(count - done, side.shape[last] - column);
    visit(side.tensor->data + offset * bytes, side.strides[last] * bytes, run, done);
    done += run;
  }
}

void ChunkReader::Read(int64_t begin, int64_t count, ChunkValues* out) const {
  const auto size = static_cast<size_t>(count);
  out->complex = IsComplex(sides_[0].tensor->dtype);
  for (int i = 0; i < 2; ++i) {
    if (out->real[i].size() < size) out->real[i].resize(size);
    if (out->complex && out->imag[i].size() < size) out->imag[i].resize(size);
    const DType dtype = sides_[i].tensor->dtype;
    ForEachRun(sides_[i], begin, count,
               [&](const std::byte* from, int64_t step_bytes, int64_t run, int64_t done) {
                 Decode(dtype, from, step_bytes, run, out->real[i].data() + done,
                        out->complex ? out->imag[i].data() + done : nullptr);
               });
  }
  if (out->difference.size() < size) out->difference.resize(size);
  if (!exact_integers_) {
    for (size_t i = 0; i < size; ++i) out->difference[i] = out->real[0][i] - out->real[1][i];
    return;
  }
  std::vector<__int128> values(size);
  for (int i = 0; i < 2; ++i) {
    const DType dtype = sides_[i].tensor->dtype;
    ForEachRun(sides_[i], begin, count,
               [&](const std::byte* from, int64_t step_bytes, int64_t run, int64_t done) {
                 for (int64_t k = 0; k < run; ++k) {
                   const __int128 value = WideInteger(dtype, from + k * step_bytes);
                   values[static_cast<size_t>(done + k)] =
                       i == 0 ? value : values[static_cast<size_t>(done + k)] - value;
                 }
               });
  }
  for (size_t i = 0; i < size; ++i) out->difference[i] = static_cast<double>(values[i]);
}

}  // namespace ops_debug::analysis
