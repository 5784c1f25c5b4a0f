// One block computes a row and tells the others by a flag that it is ready: message passing.
//
// Planted fault: no fence between the data and the flag, on neither side. The PTX memory model lets the
// flag arrive before the data, and lets a block that has seen the flag read older data; on most GPUs
// and in most runs neither happens. With -DFIXED each side has its __threadfence().
//
//   nvcc -cudart shared -lineinfo -gencode arch=compute_90,code=compute_90 -o message_passing examples/message_passing.cu
//   ops-debug run --schedules 200 -- ./message_passing
//   ops-debug run --replay SEED -- ./message_passing
//
// Prints what the readers got; exits with 1 if that is wrong.
#include <cstdio>

#ifdef FIXED
#define FENCE() __threadfence()
#else
#define FENCE()
#endif

constexpr int kReaders = 3;
constexpr int kThreads = 32;

__device__ int data[kThreads];
__device__ volatile int ready;

__global__ void pass(int* results) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = 1000 + static_cast<int>(threadIdx.x);
    FENCE();
    __syncthreads();
    if (threadIdx.x == 0) ready = 1;
    return;
  }
  if (threadIdx.x == 0) {
    while (ready == 0) {
    }
  }
  __syncthreads();
  FENCE();
  results[(blockIdx.x - 1) * kThreads + threadIdx.x] = data[threadIdx.x];
}

int main() {
  int* results = nullptr;
  int host[kReaders * kThreads] = {};
  cudaMalloc(&results, sizeof(host));
  pass<<<1 + kReaders, kThreads>>>(results);
  const cudaError_t status = cudaMemcpy(host, results, sizeof(host), cudaMemcpyDeviceToHost);
  cudaFree(results);
  if (status != cudaSuccess) {
    std::printf("failed: %s\n", cudaGetErrorString(status));
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < kReaders * kThreads; ++i) {
    const int expected = 1000 + i % kThreads;
    if (host[i] == expected) continue;
    if (wrong++ == 0)
      std::printf("reader %d, element %d: %d instead of %d\n", i / kThreads, i % kThreads, host[i], expected);
  }
  std::printf("%d wrong elements\n", wrong);
  return wrong == 0 ? 0 : 1;
}
