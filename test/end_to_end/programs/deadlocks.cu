// Kernels that never end, one per argument: "barrier", "grid", "residency"; and "slow", which does.
#include <cooperative_groups.h>

#include <cstdio>
#include <cstring>

__device__ volatile int flag;

__global__ void divergent_barrier(int* out) {
  __shared__ int sum;
  if (threadIdx.x < 32) {
    sum = 1;
    asm volatile("barrier.sync 1;" ::: "memory");  // LINE first half
  } else {
    asm volatile("barrier.sync 2;" ::: "memory");  // LINE second half
  }
  out[threadIdx.x] = sum;
}

__global__ void unequal_grid_syncs(int* out) {
  const auto grid = cooperative_groups::this_grid();
  out[blockIdx.x] = 1;
  grid.sync();
  if (blockIdx.x != 1) grid.sync();  // LINE second sync
}

__global__ void wait_for_last_block(int* out) {
  if (blockIdx.x == gridDim.x - 1) {
    flag = 1;
  } else if (threadIdx.x == 0) {
    while (flag == 0) {  // LINE spin
    }
  }
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void compute_for_long(int* out) {
  unsigned value = 1;
  for (int i = 0; i < 600000; ++i) {
    value = value * 1664525u + 1013904223u;
    if (flag != 0) break;  // polled, never set
  }
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(value);
}

int main(int, char** arguments) {
  const char* const which = arguments[1];
  int* out = nullptr;
  cudaMalloc(&out, 4096 * sizeof(int));
  if (std::strcmp(which, "barrier") == 0) divergent_barrier<<<1, 64>>>(out);
  if (std::strcmp(which, "grid") == 0) {
    void* parameters[] = {&out};
    cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(unequal_grid_syncs), dim3(4), dim3(32), parameters, 0,
                                nullptr);
  }
  if (std::strcmp(which, "residency") == 0) {
    int blocks = 0, processors = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, wait_for_last_block, 1024, 0);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    wait_for_last_block<<<blocks * processors + 1, 1024>>>(out);
  }
  if (std::strcmp(which, "slow") == 0) compute_for_long<<<4, 32>>>(out);
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(status));
  return status == cudaSuccess ? 0 : 1;
}
