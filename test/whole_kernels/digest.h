// What the whole-kernel programs share: seeded inputs, device arrays, and the one-line digests that
// run.py compares with those of the hardware. Every result is first held against a plain
// computation on the host, so that a wrong kernel never becomes the record.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace whole_kernels {

inline void Require(cudaError_t error, const char* what, const char* file, int line) {
  if (error == cudaSuccess) return;
  std::printf("%s:%d: %s: %s (%s)\n", file, line, what, cudaGetErrorName(error),
              cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(2);
}
#define REQUIRE_CUDA(call) ::whole_kernels::Require((call), #call, __FILE__, __LINE__)

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next64() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint32_t Next() { return static_cast<uint32_t>(Next64() >> 32); }
  // [0, bound)
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(Next() % bound); }
  // [-bound, bound], a whole number
  int Whole(int bound) { return static_cast<int>(Below(2 * bound + 1)) - bound; }
  // [-1, 1), a multiple of 2^-23
  float Unit() { return static_cast<float>(Next() >> 8) * 0x1p-23f - 1.0f; }

 private:
  uint64_t state_;
};

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    REQUIRE_CUDA(cudaMalloc(&data_, count * sizeof(T)));
    REQUIRE_CUDA(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    REQUIRE_CUDA(
        cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }
  // Waits for the device: the programs need no other synchronisation.
  std::vector<T> Download() const {
    REQUIRE_CUDA(cudaGetLastError());
    REQUIRE_CUDA(cudaDeviceSynchronize());
    std::vector<T> values(count_);
    REQUIRE_CUDA(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

inline int& Failures() {
  static int failures = 0;
  return failures;
}

// FNV-1a, 64 bits.
inline uint64_t HashBytes(const void* data, size_t size_bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size_bytes; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

// Results that have to equal the host's bit for bit.
template <class T>
void Exact(const std::string& name, const std::vector<T>& got, const std::vector<T>& expected) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (got.size() != expected.size()) {
    std::printf("%s: WRONG: %zu values, the host has %zu\n", name.c_str(), got.size(),
                expected.size());
    ++Failures();
    return;
  }
  size_t wrong = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) != 0) {
      ++wrong;
      first = i;
    }
  }
  if (wrong != 0) {
    uint64_t got_bits = 0, expected_bits = 0;
    std::memcpy(&got_bits, &got[first], sizeof(T) < 8 ? sizeof(T) : 8);
    std::memcpy(&expected_bits, &expected[first], sizeof(T) < 8 ? sizeof(T) : 8);
    std::printf("%s: WRONG: %zu of %zu differ from the host, first [%zu] = 0x%llx, host 0x%llx\n",
                name.c_str(), wrong, got.size(), first, static_cast<unsigned long long>(got_bits),
                static_cast<unsigned long long>(expected_bits));
    ++Failures();
    return;
  }
  std::printf("%s: exact n=%zu %016llx\n", name.c_str(), got.size(),
              static_cast<unsigned long long>(HashBytes(got.data(), got.size() * sizeof(T))));
}

template <class T>
void Exact(const std::string& name, const T& got, const T& expected) {
  Exact(name, std::vector<T>{got}, std::vector<T>{expected});
}

// Results of approximate functions or of sums whose order the ISA leaves open. `tolerance` bounds
// the error of a value relative to its size or to the root mean square of all, whichever is larger;
// it holds against the host and against the record.
inline void Approximate(const std::string& name, const std::vector<float>& got,
                        const std::vector<double>& expected, double tolerance) {
  constexpr size_t kSamples = 16;
  double sum = 0, squares = 0, expected_squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    sum += got[i];
    squares += static_cast<double>(got[i]) * got[i];
    expected_squares += expected[i] * expected[i];
  }
  const double rms = std::sqrt(expected_squares / static_cast<double>(got.size()));
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(got[i] - expected[i]);
    if (!(error <= tolerance * std::fmax(std::fabs(expected[i]), rms))) {
      std::printf("%s: WRONG: [%zu] = %.9g, host %.9g, more than %g apart\n", name.c_str(), i,
                  got[i], expected[i], tolerance);
      ++Failures();
      return;
    }
  }
  std::printf("%s: float n=%zu tolerance=%g sum=%.9g l2=%.9g samples", name.c_str(), got.size(),
              tolerance, sum, std::sqrt(squares));
  const size_t count = got.size() < kSamples ? got.size() : kSamples;
  for (size_t k = 0; k < count; ++k) {
    // Spread over the array, and not all of the same column.
    std::printf(" %.9g", got[k * (got.size() - 1) / (count > 1 ? count - 1 : 1)]);
  }
  std::printf("\n");
}

// The exit code of main.
inline int Finish() { return Failures() == 0 ? 0 : 1; }

}  // namespace whole_kernels
