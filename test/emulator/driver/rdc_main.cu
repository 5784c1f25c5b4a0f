// Separate compilation: uses a function and a variable of rdc_other.cu.
#include <cuda_runtime.h>

#include <cstdio>

extern __device__ int other_value;
__device__ int twice(int x);

static __device__ int helper(int x) { return x + 2; }

__global__ void run(int* out) {
  out[0] = helper(twice(20));
  out[1] = other_value;
}

int main() {
  int* device = nullptr;
  int values[2] = {};
  cudaMalloc(&device, sizeof(values));
  run<<<1, 1>>>(device);
  cudaMemcpy(values, device, sizeof(values), cudaMemcpyDeviceToHost);
  std::printf("%d %d\n", values[0], values[1]);
  return 0;
}
