// Tensors as they pass between processes and files: a type, a shape, strides, bytes. Plain data;
// the containers are in tensor_file.h, the contract of providers in provider.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ops_debug::proto {

enum class DType : uint8_t {
  kBool,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat8E4M3,  // OCP 8-bit formats as PyTorch's float8_e4m3fn (no infinity) and float8_e5m2
  kFloat8E5M2,
  kFloat16,
  kBfloat16,
  kTf32,  // float32 whose low 13 bits carry no information: compared with tf32's spacing
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

// As PyTorch spells them: "float8_e4m3fn", "bfloat16", "complex64"; "tf32".
const char* Name(DType dtype);
// Also knows NumPy's, safetensors' and short spellings ("f32", "<f4", "BF16", "half"). False:
// unknown.
bool ParseDType(const std::string& text, DType* dtype);
uint32_t ElementBytes(DType dtype);
bool IsFloating(DType dtype);  // complex types included

// Does not own the bytes unless `owner` does. Rank 0 holds one element; a dimension of 0 none.
struct Tensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;     // in elements, may be 0 or negative; empty: row-major and dense
  const std::byte* data = nullptr;  // of the element with all indices 0; alignment is not promised
  std::shared_ptr<const void> owner;

  int64_t ElementCount() const;  // product of the shape
  bool IsDense() const;          // row-major without gaps
};

}  // namespace ops_debug::proto
