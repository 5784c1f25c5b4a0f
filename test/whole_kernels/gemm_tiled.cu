// Matrix product with tiles in shared memory, fetched with cp.async into two buffers while the
// other is used. Partial tiles are filled with zeros by the copy itself (src-size). Each sum is
// made of fused multiply-adds in the order of k, so the result is exact for any input.
#include <tuple>

#include "digest.h"

using namespace whole_kernels;

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPerThread = 4;

__device__ void CopyAsync(float* shared, const float* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(bytes)
               : "memory");
}

// Columns are multiples of 4, so a 16-byte piece is inside or outside as a whole but for K.
__device__ void FetchTile(float (*tile)[kDepth + 4], const float* matrix, int first_row, int rows,
                          int first_column, int columns) {
  const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 4;
  const int left = columns - (first_column + column);
  const bool inside = first_row + row < rows && left > 0;
  const float* source =
      inside ? matrix + (first_row + row) * columns + first_column + column : matrix;
  CopyAsync(&tile[row][column], source, inside ? (left < 4 ? left : 4) * 4 : 0);
}

// C = A * B^T: both have K as the fast dimension.
__global__ void __launch_bounds__(kThreads)
    gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float tile_a[2][kTile][kDepth + 4], tile_b[2][kTile][kDepth + 4];
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  const int thread_row = threadIdx.x / 16 * kPerThread, thread_column = threadIdx.x % 16;
  const int steps = (k + kDepth - 1) / kDepth;
  const auto fetch = [&](int step) {
    if (step < steps) {
      FetchTile(tile_a[step % 2], a, first_row, m, step * kDepth, k);
      FetchTile(tile_b[step % 2], b, first_column, n, step * kDepth, k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float sum[kPerThread][kPerThread] = {};
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    fetch(step + 1);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (int i = 0; i < kDepth; ++i) {
      for (int r = 0; r < kPerThread; ++r) {
        const float left = tile_a[step % 2][thread_row + r][i];
        for (int q = 0; q < kPerThread; ++q)
          sum[r][q] = __fmaf_rn(left, tile_b[step % 2][thread_column + 16 * q][i], sum[r][q]);
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < kPerThread; ++r) {
    for (int q = 0; q < kPerThread; ++q) {
      const int row = first_row + thread_row + r, column = first_column + thread_column + 16 * q;
      if (row < m && column < n) c[row * n + column] = sum[r][q];
    }
  }
}

int main() {
  Random random(21);
  for (const auto& [m, n, k] : {std::tuple{128, 64, 64}, std::tuple{100, 130, 92}}) {
    std::vector<float> a(m * k), b(n * k), expected(m * n);
    for (float& value : a) value = random.Unit();
    for (float& value : b) value = random.Unit();
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int l = 0; l < k; ++l) sum = std::fma(a[i * k + l], b[j * k + l], sum);
        expected[i * n + j] = sum;
      }
    }
    DeviceArray<float> device_a(a), device_b(b), device_c(m * n);
    const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    gemm<<<grid, kThreads>>>(device_a.data(), device_b.data(), device_c.data(), m, n, k);
    Exact("gemm " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
          device_c.Download(), expected);
  }
  return Finish();
}
