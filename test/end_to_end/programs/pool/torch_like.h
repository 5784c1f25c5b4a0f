// The parts of PyTorch's C++ interface that a caching allocator and its users meet, with the same
// names, so that the dynamic linker sees what it sees in PyTorch. Nothing behind them is PyTorch's.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#define EXPORTED __attribute__((visibility("default")))

namespace c10 {

template <class T>
class ArrayRef {
 public:
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const std::vector<T>& values) : data_(values.data()), size_(values.size()) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }

 private:
  const T* data_;
  size_t size_;
};

struct Device {
  int8_t type = 1;  // CUDA
  int8_t index = 0;
};

class EXPORTED Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* address) = 0;
};

class DispatchKeySet {
 public:
  uint64_t keys = 0;
};
enum class ScalarType : int8_t { Byte = 0, Float = 6, Double = 7 };
enum class MemoryFormat : int8_t { Contiguous };

EXPORTED void reportMemoryUsageToProfiler(void* address, int64_t change, size_t allocated,
                                          size_t reserved, Device device);
EXPORTED int64_t ReportedBytes();  // of live blocks, as the profiler knows them

namespace cuda {

class EXPORTED CUDAStream {
 public:
  explicit CUDAStream(int64_t id) : id_(id) {}
  cudaStream_t stream() const;
  int64_t id() const { return id_; }

 private:
  Device device_;
  int64_t id_;
};
EXPORTED CUDAStream getCurrentCUDAStream(int8_t device);
EXPORTED void SetCurrentStream(cudaStream_t stream);

enum class Segments { kMalloc, kExpandable };
// Segments of 2 MiB, blocks rounded to 512 bytes, one free list per stream; a pool of its own for
// what is allocated while the stream captures.
EXPORTED Allocator* CachingAllocator(Segments segments);
EXPORTED void RecordStream(void* address, cudaStream_t stream);
EXPORTED void EmptyCache();
// While on, memory comes from the graphs' pool though nothing is captured: so PyTorch allocates the
// inputs of a graph, and what warms it up.
EXPORTED void UseGraphPool(bool on);

}  // namespace cuda
}  // namespace c10

namespace at {

// Owns its memory. Returned through a hidden pointer, as PyTorch's is.
class EXPORTED TensorBase {
 public:
  TensorBase() = default;
  TensorBase(void* data, c10::Allocator* allocator) : data_(data), allocator_(allocator) {}
  TensorBase(TensorBase&& other) noexcept { *this = std::move(other); }
  TensorBase& operator=(TensorBase&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(allocator_, other.allocator_);
    return *this;
  }
  ~TensorBase() { Reset(); }
  void Reset() {
    if (data_) allocator_->free(data_);
    data_ = nullptr;
  }
  template <class T = float>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  c10::Allocator* allocator_ = nullptr;
};

namespace detail {
EXPORTED TensorBase empty_generic(c10::ArrayRef<int64_t> sizes, c10::Allocator* allocator,
                                  c10::DispatchKeySet keys, c10::ScalarType type,
                                  std::optional<c10::MemoryFormat> format);
EXPORTED TensorBase empty_strided_generic(c10::ArrayRef<int64_t> sizes,
                                          c10::ArrayRef<int64_t> strides, c10::Allocator* allocator,
                                          c10::DispatchKeySet keys, c10::ScalarType type);
}  // namespace detail
}  // namespace at
