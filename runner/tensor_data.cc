// A counter-based generator (splitmix64: Steele, Lea and Flood, OOPSLA 2014): element i of a buffer
// depends on nothing but the seed, the buffer's number and i.
#include "runner/tensor_data.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>

#include "runner/scalar_bytes.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// A number that is filled in, before it gets its type.
struct Value {
  double floating;
  uint64_t integer;
};

Value ValueAt(Fill fill, uint64_t index, uint64_t stream, uint64_t index_limit) {
  switch (fill) {
    case Fill::kZeros:
      return {0, 0};
    case Fill::kOnes:
      return {1, 1};
    case Fill::kIota:
      return {static_cast<double>(index), index};
    case Fill::kNan:
      return {std::numeric_limits<double>::quiet_NaN(), 0};
    case Fill::kRandom:
      break;
  }
  const uint64_t bits = Mix(stream + index);
  // 24 bits: exact in f32, so that all floating types see the same numbers but for their own
  // rounding.
  return {static_cast<double>(bits >> 40) * 0x1p-23 - 1.0, (bits >> 16) % index_limit};
}

template <class T>
void Put(std::vector<std::byte>& bytes, uint64_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

void PutValue(std::vector<std::byte>& bytes, uint64_t index, ScalarType type, const Value& value) {
  switch (type) {
    case ScalarType::kBool:
      return Put(bytes, index, static_cast<uint8_t>(value.integer & 1));
    case ScalarType::kS8:
      return Put(bytes, index, static_cast<uint8_t>(value.integer & 0x7f));
    case ScalarType::kU8:
      return Put(bytes, index, static_cast<uint8_t>(value.integer));
    case ScalarType::kS16:
    case ScalarType::kU16:
      return Put(bytes, index, static_cast<uint16_t>(value.integer));
    case ScalarType::kS32:
    case ScalarType::kU32:
      return Put(bytes, index, static_cast<uint32_t>(value.integer));
    case ScalarType::kS64:
    case ScalarType::kU64:
      return Put(bytes, index, value.integer);
    case ScalarType::kF16:
      return Put(bytes, index, FloatToHalf(static_cast<float>(value.floating)));
    case ScalarType::kBf16:
      return Put(bytes, index, FloatToBfloat16(static_cast<float>(value.floating)));
    case ScalarType::kF32:
      return Put(bytes, index, static_cast<float>(value.floating));
    case ScalarType::kF64:
      return Put(bytes, index, value.floating);
  }
}

std::string_view NumpyType(ScalarType type) {
  switch (type) {
    case ScalarType::kBool:
      return "|b1";
    case ScalarType::kS8:
      return "|i1";
    case ScalarType::kU8:
      return "|u1";
    case ScalarType::kS16:
      return "<i2";
    case ScalarType::kU16:
    case ScalarType::kBf16:
      return "<u2";
    case ScalarType::kS32:
      return "<i4";
    case ScalarType::kU32:
      return "<u4";
    case ScalarType::kS64:
      return "<i8";
    case ScalarType::kU64:
      return "<u8";
    case ScalarType::kF16:
      return "<f2";
    case ScalarType::kF32:
      return "<f4";
    case ScalarType::kF64:
      return "<f8";
  }
  return "|u1";
}

}  // namespace

std::vector<std::byte> MakeContents(const ArgumentPlan& buffer, uint64_t buffer_number,
                                    uint64_t seed, uint64_t index_limit) {
  std::vector<std::byte> bytes(buffer.size_bytes, std::byte{0});
  if (buffer.fill == Fill::kZeros) return bytes;
  const ScalarType type = buffer.element.scalar;
  const uint64_t count = buffer.size_bytes / SizeBytes(type);
  if (SizeBytes(type) == 1) index_limit = 256;  // bytes are data, not indices
  const uint64_t stream = Mix(seed ^ Mix(buffer_number));
  for (uint64_t i = 0; i < count; ++i) {
    PutValue(bytes, i, type, ValueAt(buffer.fill, i, stream, index_limit));
  }
  return bytes;
}

uint64_t IndexLimit(const LaunchPlan& plan) {
  uint64_t limit = 256;
  for (const ArgumentPlan& argument : plan.arguments) {
    if (argument.is_buffer) limit = std::min<uint64_t>(limit, ElementCount(argument.shape));
  }
  return limit;
}

absl::Status SaveNpy(const std::string& path, const ArgumentPlan& buffer,
                     const std::vector<std::byte>& contents) {
  std::string shape;
  for (int64_t dimension : buffer.shape) StrAppend(&shape, dimension, ", ");
  if (buffer.element.lanes > 1) StrAppend(&shape, buffer.element.lanes, ", ");
  std::string header = StrCat("{'descr': '", NumpyType(buffer.element.scalar),
                              "', 'fortran_order': False, 'shape': (", shape, "), }");
  // Magic, version and length take 10 bytes; the data starts at a multiple of 64.
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header += '\n';
  const char prefix[10] = {'\x93',
                           'N',
                           'U',
                           'M',
                           'P',
                           'Y',
                           1,
                           0,
                           static_cast<char>(header.size() & 0xff),
                           static_cast<char>(header.size() >> 8)};
  std::ofstream file(path, std::ios::binary);
  file.write(prefix, sizeof prefix);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(reinterpret_cast<const char*>(contents.data()),
             static_cast<std::streamsize>(contents.size()));
  file.close();
  if (!file) return absl::InternalError(StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace ops_debug::runner
