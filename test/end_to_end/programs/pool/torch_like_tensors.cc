// The library that makes tensors.
#include <stdexcept>

#include "torch_like.h"

namespace at::detail {
namespace {

size_t ElementBytes(c10::ScalarType type) {
  return type == c10::ScalarType::Byte ? 1 : type == c10::ScalarType::Float ? 4 : 8;
}

TensorBase Make(size_t bytes, c10::Allocator* allocator) {
  void* const data = allocator->allocate(bytes);
  if (!data) throw std::runtime_error("out of memory");
  return TensorBase(data, allocator);
}

}  // namespace

TensorBase empty_generic(c10::ArrayRef<int64_t> sizes, c10::Allocator* allocator,
                         c10::DispatchKeySet keys, c10::ScalarType type,
                         std::optional<c10::MemoryFormat> format) {
  if (keys.keys != 0x1234 || !format || *format != c10::MemoryFormat::Contiguous) {
    throw std::runtime_error("the parameters arrived damaged");
  }
  size_t bytes = ElementBytes(type);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  return Make(bytes, allocator);
}

TensorBase empty_strided_generic(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides,
                                 c10::Allocator* allocator, c10::DispatchKeySet keys,
                                 c10::ScalarType type) {
  if (keys.keys != 0x1234) throw std::runtime_error("the parameters arrived damaged");
  size_t elements = 1;
  for (size_t i = 0; i < sizes.size(); i++) {
    elements += static_cast<size_t>(sizes[i] - 1) * static_cast<size_t>(strides[i]);
  }
  return Make(elements * ElementBytes(type), allocator);
}

}  // namespace at::detail
