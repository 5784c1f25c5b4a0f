// Types of elements: the one table of their spellings, and what follows from a tensor's shape.
#include "proto/tensor.h"

#include <array>
#include <initializer_list>
#include <string_view>

namespace ops_debug::proto {
namespace {

struct TypeRow {
  DType dtype;
  uint32_t bytes;
  bool floating;
  // PyTorch's first; then NumPy's letters without the byte order, safetensors', short and C
  // spellings.
  std::initializer_list<const char*> spellings;
};

const std::array<TypeRow, 18>& Types() {
  static const std::array<TypeRow, 18> kTypes = {{
      {DType::kBool, 1, false, {"bool", "b1", "bool_"}},
      {DType::kInt8, 1, false, {"int8", "i8", "char", "s8"}},
      {DType::kUint8, 1, false, {"uint8", "u8", "byte"}},
      {DType::kInt16, 2, false, {"int16", "i16", "i2", "short", "s16"}},
      {DType::kUint16, 2, false, {"uint16", "u16", "u2"}},
      {DType::kInt32, 4, false, {"int32", "i32", "i4", "int", "s32"}},
      {DType::kUint32, 4, false, {"uint32", "u32", "u4"}},
      {DType::kInt64, 8, false, {"int64", "i64", "long", "s64"}},
      {DType::kUint64, 8, false, {"uint64", "u64"}},
      {DType::kFloat8E4M3,
       1,
       true,
       {"float8_e4m3fn", "float8_e4m3", "f8_e4m3", "f8_e4m3fn", "fp8e4nv", "e4m3", "fp8"}},
      {DType::kFloat8E5M2, 1, true, {"float8_e5m2", "f8_e5m2", "fp8e5", "e5m2"}},
      {DType::kFloat16, 2, true, {"float16", "f16", "f2", "half", "fp16"}},
      {DType::kBfloat16, 2, true, {"bfloat16", "bf16"}},
      {DType::kTf32, 4, true, {"tf32", "tfloat32"}},
      {DType::kFloat32, 4, true, {"float32", "f32", "f4", "float", "fp32", "single"}},
      {DType::kFloat64, 8, true, {"float64", "f64", "double", "fp64"}},
      {DType::kComplex64, 8, true, {"complex64", "c64", "cfloat"}},
      {DType::kComplex128, 16, true, {"complex128", "c128", "cdouble"}},
  }};
  return kTypes;
}

const TypeRow& Row(DType dtype) {
  return Types()[static_cast<size_t>(dtype)];  // in the order of DType, which tensor_test checks
}

// NumPy's type strings carry their byte order: '<', '>', '|' or '='. Behind it a letter and the
// size in bytes, so that "<f4" is four bytes where "f8" alone would be safetensors' eight bits.
bool ParseNumpyType(std::string_view text, DType* dtype) {
  struct NumpyRow {
    std::string_view code;
    DType dtype;
  };
  static constexpr std::array<NumpyRow, 14> kNumpy = {{
      {"b1", DType::kBool},
      {"i1", DType::kInt8},
      {"u1", DType::kUint8},
      {"i2", DType::kInt16},
      {"u2", DType::kUint16},
      {"i4", DType::kInt32},
      {"u4", DType::kUint32},
      {"i8", DType::kInt64},
      {"u8", DType::kUint64},
      {"f2", DType::kFloat16},
      {"f4", DType::kFloat32},
      {"f8", DType::kFloat64},
      {"c8", DType::kComplex64},
      {"c16", DType::kComplex128},
  }};
  for (const NumpyRow& row : kNumpy) {
    if (row.code == text) {
      *dtype = row.dtype;
      return true;
    }
  }
  return false;
}

}  // namespace

const char* Name(DType dtype) { return *Row(dtype).spellings.begin(); }

bool ParseDType(const std::string& text, DType* dtype) {
  // '>' is another byte order: only of one byte is it the same type.
  if (!text.empty() && (text[0] == '<' || text[0] == '|' || text[0] == '=' || text[0] == '>')) {
    DType parsed{};
    if (!ParseNumpyType(std::string_view(text).substr(1), &parsed)) return false;
    if (text[0] == '>' && ElementBytes(parsed) > 1) return false;
    *dtype = parsed;
    return true;
  }
  std::string lower;
  for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.starts_with("torch.")) lower.erase(0, 6);
  for (const TypeRow& row : Types()) {
    for (const char* spelling : row.spellings) {
      if (lower == spelling) {
        *dtype = row.dtype;
        return true;
      }
    }
  }
  return false;
}

uint32_t ElementBytes(DType dtype) { return Row(dtype).bytes; }

bool IsFloating(DType dtype) { return Row(dtype).floating; }

int64_t Tensor::ElementCount() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool Tensor::IsDense() const {
  if (strides.empty() || ElementCount() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace ops_debug::proto
