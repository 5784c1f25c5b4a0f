// Half, bfloat16 and fp8 element by element: every value of each format through conversions, and
// arithmetic on pairs. The host's versions of the same functions in the toolkit's headers say what
// is right. NaNs are made equal: their payload is not part of the type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "digest.h"

using namespace whole_kernels;

template <class T>
__host__ __device__ float ToFloat(T value) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(value);
  else
    return __bfloat162float(value);
}
template <class T>
__host__ __device__ T FromFloat(float value) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(value);
  else
    return __float2bfloat16(value);
}
template <class T>
__host__ __device__ unsigned short Bits(T value) {
  unsigned short bits;
  memcpy(&bits, &value, 2);
  return ToFloat(value) != ToFloat(value) ? 0x7fff : bits;
}
template <class T>
__host__ __device__ T Make(unsigned short bits) {
  T value;
  memcpy(static_cast<void*>(&value), &bits, 2);
  return value;
}
__host__ __device__ unsigned Bits(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return value != value ? 0x7fffffffu : bits;
}

// a * b + a, rounded once. The host has no such function: its double-precision sum is rounded to
// odd (Boldo and Melquiond 2008), so that rounding it again to the short format is harmless.
template <class T>
__host__ __device__ T MultiplyAdd(T a, T b) {
#ifdef __CUDA_ARCH__
  return __hfma(a, b, a);
#else
  const double product = static_cast<double>(ToFloat(a)) * ToFloat(b), addend = ToFloat(a);
  double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  uint64_t bits;
  std::memcpy(&bits, &sum, 8);
  if (std::isfinite(sum) && error != 0 && bits % 2 == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  std::memcpy(&sum, &bits, 8);
  if constexpr (std::is_same_v<T, __half>)
    return __double2half(sum);
  else
    return __double2bfloat16(sum);
#endif
}

constexpr int kResults = 8;

template <class T>
__host__ __device__ void Compute(unsigned short bits, unsigned short other, unsigned* results) {
  const T a = Make<T>(bits), b = Make<T>(other);
  results[0] = Bits(ToFloat(a));
  results[1] = Bits(__hadd(a, b));
  results[2] = Bits(__hmul(a, b));
  results[3] = Bits(MultiplyAdd(a, b));
  results[4] = Bits(FromFloat<T>(ToFloat(a) * 1.001f));
  results[5] = Bits(__hmax(a, b)) | static_cast<unsigned>(Bits(__hmin(a, b))) << 16;
  results[6] = __hlt(a, b) | __heq(a, b) << 1 | __hgeu(a, b) << 2 | __hisnan(a) << 3;
  results[7] = Bits(__hsub(a, b));
}

template <class T>
__global__ void every_value(unsigned* results) {
  const unsigned bits = blockIdx.x * blockDim.x + threadIdx.x;
  Compute<T>(bits, bits * 40503u >> 3, results + kResults * bits);
}

// Two fp8 values at a time, from and to halves and floats.
template <class Fp8, class Fp8x2>
__host__ __device__ unsigned Convert8(unsigned short bits) {
  float value = __half2float(Make<__half>(bits));
  if (value != value) value = 0.0f;
  Fp8 one(value);
  const Fp8x2 two(make_float2(value, -3.0f * value));
  const float back = static_cast<float>(one);
  unsigned low = one.__x;
  return low | static_cast<unsigned>(two.__x) << 8 |
         (Bits(FromFloat<__half>(back)) & 0xff00u) << 16;
}

template <class Fp8, class Fp8x2>
__global__ void every_half_to_fp8(unsigned* results) {
  const unsigned bits = blockIdx.x * blockDim.x + threadIdx.x;
  results[bits] = Convert8<Fp8, Fp8x2>(bits);
}

// Pairs, as kernels of libraries use them: GELU's polynomial part in bf16x2.
__global__ void pairs(const __nv_bfloat162* x, const __nv_bfloat162* y, __nv_bfloat162* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const __nv_bfloat162 scale = __float2bfloat162_rn(0.044715f), one = __float2bfloat162_rn(1.0f);
  const __nv_bfloat162 square = __hmul2(x[i], x[i]);
  z[i] = __hmul2(__hfma2(__hmul2(scale, square), x[i], x[i]), __hadd2(y[i], one));
}

template <class T>
void TestEveryValue(const char* name) {
  std::vector<unsigned> expected(65536 * kResults);
  for (unsigned bits = 0; bits < 65536; ++bits)
    Compute<T>(bits, bits * 40503u >> 3, &expected[kResults * bits]);
  DeviceArray<unsigned> results(expected.size());
  every_value<T><<<256, 256>>>(results.data());
  Exact(name, results.Download(), expected);
}

template <class Fp8, class Fp8x2>
void TestFp8(const char* name) {
  std::vector<unsigned> expected(65536);
  for (unsigned bits = 0; bits < 65536; ++bits) expected[bits] = Convert8<Fp8, Fp8x2>(bits);
  DeviceArray<unsigned> results(65536);
  every_half_to_fp8<Fp8, Fp8x2><<<256, 256>>>(results.data());
  Exact(name, results.Download(), expected);
}

int main() {
  TestEveryValue<__half>("half");
  TestEveryValue<__nv_bfloat16>("bfloat16");
  TestFp8<__nv_fp8_e4m3, __nv_fp8x2_e4m3>("e4m3");
  TestFp8<__nv_fp8_e5m2, __nv_fp8x2_e5m2>("e5m2");

  Random random(73);
  std::vector<__nv_bfloat162> x(4096), y(4096), expected(4096);
  const auto round = [](double value) { return __float2bfloat16(static_cast<float>(value)); };
  const auto real = [](__nv_bfloat16 value) {
    return static_cast<double>(__bfloat162float(value));
  };
  for (size_t i = 0; i < x.size(); ++i) {
    for (int k = 0; k < 2; ++k) {
      // Products of bf16 are exact in single precision; so is the sum here in double, and rounding
      // it twice would show as a difference.
      const __nv_bfloat16 a = round(random.Unit() * 4), b = round(random.Unit());
      const __nv_bfloat16 square = round(real(a) * real(a));
      const __nv_bfloat16 scaled = round(real(round(0.044715f)) * real(square));
      const __nv_bfloat16 inner = round(real(scaled) * real(a) + real(a));
      const __nv_bfloat16 outer = round(real(b) + 1.0);
      (k == 0 ? x[i].x : x[i].y) = a;
      (k == 0 ? y[i].x : y[i].y) = b;
      (k == 0 ? expected[i].x : expected[i].y) = round(real(inner) * real(outer));
    }
  }
  DeviceArray<__nv_bfloat162> device_x(x), device_y(y), z(x.size());
  pairs<<<32, 128>>>(device_x.data(), device_y.data(), z.data());
  const auto words = [](const std::vector<__nv_bfloat162>& values) {
    std::vector<unsigned> bits(values.size());
    std::memcpy(bits.data(), values.data(), 4 * values.size());
    return bits;
  };
  Exact("bf16x2", words(z.Download()), words(expected));
  return Finish();
}
