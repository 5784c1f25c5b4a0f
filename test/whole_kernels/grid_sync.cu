// A cooperative launch: Jacobi iterations with grid.sync() between them, in one kernel. Sums are in
// a fixed order and never contracted, so the result is exact.
#include <cooperative_groups.h>

#include <algorithm>

#include "digest.h"

using namespace whole_kernels;
namespace cg = cooperative_groups;

constexpr int kSide = 96, kSteps = 12;

__host__ __device__ inline float Average(float a, float b, float c, float d) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(__fadd_rn(__fadd_rn(a, b), __fadd_rn(c, d)), 0.25f);
#else
  return ((a + b) + (c + d)) * 0.25f;
#endif
}

__global__ void jacobi(float* from, float* to, float* changes) {
  const cg::grid_group grid = cg::this_grid();
  __shared__ float largest;
  for (int step = 0; step < kSteps; ++step) {
    if (threadIdx.x == 0) largest = 0.0f;
    __syncthreads();
    for (int i = grid.thread_rank(); i < kSide * kSide; i += grid.size()) {
      const int row = i / kSide, column = i % kSide;
      if (row == 0 || column == 0 || row == kSide - 1 || column == kSide - 1) {
        to[i] = from[i];
        continue;
      }
      to[i] = Average(from[i - 1], from[i + 1], from[i - kSide], from[i + kSide]);
      // Not negative, so the bits order as the numbers do.
      atomicMax(reinterpret_cast<int*>(&largest), __float_as_int(fabsf(to[i] - from[i])));
    }
    __syncthreads();
    if (threadIdx.x == 0)
      atomicMax(reinterpret_cast<int*>(&changes[step]), __float_as_int(largest));
    grid.sync();
    float* const other = from;
    from = to;
    to = other;
  }
}

int main() {
  Random random(53);
  std::vector<float> field(kSide * kSide), changes(kSteps);
  for (float& value : field) value = random.Unit();
  DeviceArray<float> a(field), b(field.size()), device_changes(kSteps);
  float *from = a.data(), *to = b.data(), *change = device_changes.data();
  int blocks = 0;
  REQUIRE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, jacobi, 128, 0));
  void* arguments[] = {&from, &to, &change};
  REQUIRE_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(jacobi),
                                           std::min(blocks * 4, 24), 128, arguments, 0, nullptr));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> next = field;
    for (int r = 1; r < kSide - 1; ++r) {
      for (int c = 1; c < kSide - 1; ++c) {
        const int i = r * kSide + c;
        next[i] = Average(field[i - 1], field[i + 1], field[i - kSide], field[i + kSide]);
        changes[step] = std::max(changes[step], std::fabs(next[i] - field[i]));
      }
    }
    field.swap(next);
  }
  Exact("jacobi", (kSteps % 2 == 0 ? a : b).Download(), field);
  Exact("largest changes", device_changes.Download(), changes);
  return Finish();
}
