// Launches two kernels several times: `scale`, which is right, and `overflow`, which writes one
// element too many. With "leak" it leaves memory behind: two blocks from one place, one from another.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void scale(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= 2;
}

__global__ void overflow(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= count) values[i] += 1;
}

__attribute__((noinline)) float* Allocate(int count) {
  float* values = nullptr;
  cudaMalloc(&values, count * sizeof(float));
  return values;
}

int main(int argc, char** argv) {
  const bool leak = argc > 1 && std::strcmp(argv[1], "leak") == 0;
  constexpr int kCount = 1000;
  float* values = Allocate(kCount);
  cudaMemset(values, 0, kCount * sizeof(float));
  for (int i = 0; i < 6; ++i) scale<<<4, 256>>>(values, kCount);
  if (!leak) {
    for (int i = 0; i < 4; ++i) overflow<<<4, 256>>>(values, kCount);
  }
  const cudaError_t done = cudaDeviceSynchronize();
  if (leak) {
    for (int i = 0; i < 2; ++i) Allocate(2048);
    void* small = nullptr;
    cudaMalloc(&small, 512);
  }
  cudaFree(values);
  std::printf("%s\n", cudaGetErrorName(done));
  return 0;
}
