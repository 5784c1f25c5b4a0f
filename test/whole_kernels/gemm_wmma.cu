// Matrix products with the warp matrix API of CUDA C++ (nvcuda::wmma): half, bf16, tf32, int8 and
// double fragments, row- and column-major operands, loads from shared memory, all three shapes.
// Whole numbers, so the results are exact; one product with random halves stays approximate.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "digest.h"

using namespace whole_kernels;
namespace wmma = nvcuda::wmma;

constexpr int kM = 64, kN = 64, kK = 64;

// One warp per tile. A is stored by rows; B by rows or by columns.
template <class Fragment, class Element, class Sum, int M, int N, int K, class LayoutB>
__global__ void gemm(const Element* a, const Element* b, Sum* c) {
  __shared__ __align__(32) Element tile[M * K];
  wmma::fragment<wmma::matrix_a, M, N, K, Fragment, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, M, N, K, Fragment, LayoutB> fragment_b;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
  constexpr bool kByRows = std::is_same_v<LayoutB, wmma::row_major>;
  wmma::fill_fragment(sum, static_cast<Sum>(0));
  for (int step = 0; step < kK; step += K) {
    __syncwarp();
    for (int i = threadIdx.x; i < M * K; i += 32)
      tile[i] = a[(blockIdx.y * M + i / K) * kK + step + i % K];
    __syncwarp();
    wmma::load_matrix_sync(fragment_a, tile, K);
    wmma::load_matrix_sync(
        fragment_b, kByRows ? b + step * kN + blockIdx.x * N : b + blockIdx.x * N * kK + step,
        kByRows ? kN : kK);
    wmma::mma_sync(sum, fragment_a, fragment_b, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i];
  wmma::store_matrix_sync(c + blockIdx.y * M * kN + blockIdx.x * N, sum, kN, wmma::mem_row_major);
}

template <class Element>
Element Make(float value) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>)
    return __float2bfloat16(value);
  else
    return static_cast<Element>(value);
}

template <class Fragment, class Element, class Sum, int M, int N, int K, class LayoutB>
void Test(const char* name, int low, int high) {
  Random random(high + M);
  std::vector<int> whole_a(kM * kK), whole_b(kK * kN);
  for (int& value : whole_a) value = low + static_cast<int>(random.Below(high - low + 1));
  for (int& value : whole_b) value = low + static_cast<int>(random.Below(high - low + 1));
  constexpr bool kByRows = std::is_same_v<LayoutB, wmma::row_major>;
  std::vector<Element> a, b;
  for (int value : whole_a) a.push_back(Make<Element>(static_cast<float>(value)));
  for (int value : whole_b) b.push_back(Make<Element>(static_cast<float>(value)));
  std::vector<Sum> expected;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      int sum = 0;
      for (int l = 0; l < kK; ++l)
        sum += whole_a[i * kK + l] * whole_b[kByRows ? l * kN + j : j * kK + l];
      expected.push_back(Make<Sum>(static_cast<float>(2 * sum)));
    }
  }
  DeviceArray<Element> device_a(a), device_b(b);
  DeviceArray<Sum> c(kM * kN);
  gemm<Fragment, Element, Sum, M, N, K, LayoutB>
      <<<dim3(kN / N, kM / M), 32>>>(device_a.data(), device_b.data(), c.data());
  Exact(name, c.Download(), expected);
}

int main() {
  using wmma::col_major;
  using wmma::row_major;
  Test<__half, __half, float, 16, 16, 16, row_major>("f16 16x16x16", -8, 8);
  Test<__half, __half, float, 32, 8, 16, col_major>("f16 32x8x16", -8, 8);
  Test<__half, __half, __half, 8, 32, 16, row_major>("f16 8x32x16 half sums", -3, 3);
  Test<__nv_bfloat16, __nv_bfloat16, float, 16, 16, 16, col_major>("bf16 16x16x16", -8, 8);
  Test<wmma::precision::tf32, float, float, 16, 16, 8, row_major>("tf32 16x16x8", -60, 60);
  Test<signed char, signed char, int, 16, 16, 16, col_major>("s8 16x16x16", -100, 100);
  Test<unsigned char, unsigned char, int, 32, 8, 16, row_major>("u8 32x8x16", 0, 100);
  Test<double, double, double, 8, 8, 4, row_major>("f64 8x8x4", -500, 500);

  Random random(99);
  std::vector<__half> a(kM * kK), b(kK * kN);
  for (__half& value : a) value = __float2half(random.Unit());
  for (__half& value : b) value = __float2half(random.Unit());
  std::vector<double> expected(kM * kN);
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j)
      for (int l = 0; l < kK; ++l)
        expected[i * kN + j] += 2.0 * __half2float(a[i * kK + l]) * __half2float(b[l * kN + j]);
  DeviceArray<__half> device_a(a), device_b(b);
  DeviceArray<float> c(kM * kN);
  gemm<__half, __half, float, 16, 16, 16, row_major>
      <<<dim3(kN / 16, kM / 16), 32>>>(device_a.data(), device_b.data(), c.data());
  // Products are exact, the sums of 64 of them lose bits in an order that the ISA leaves open and
  // at a precision of at least single with truncation: 64 * 2^-23 of sums near the root mean
  // square.
  Approximate("f16 random", c.Download(), expected, 1e-5);
  return Finish();
}
