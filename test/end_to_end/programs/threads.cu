// Four threads launch at the same time, each on its own stream, over all devices that there are.
// With "overflow" each thread's last launch writes one element too many.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

__device__ int launches_of_device = 0;

__global__ void add(int* values, int count, int amount) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += amount;
  if (i == 0) atomicAdd(&launches_of_device, 1);
}

namespace {

constexpr int kThreads = 4, kLaunches = 25, kCount = 300;

void Work(int number, int devices, bool overflow, int* result) {
  cudaSetDevice(number % devices);
  int* values = nullptr;
  cudaMalloc(&values, kCount * sizeof(int));
  cudaMemsetAsync(values, 0, kCount * sizeof(int), cudaStreamPerThread);
  for (int i = 0; i < kLaunches; ++i) {
    const bool beyond = overflow && i == kLaunches - 1;
    add<<<2, 256, 0, cudaStreamPerThread>>>(values, beyond ? kCount + 1 : kCount, 1);
  }
  cudaStreamSynchronize(cudaStreamPerThread);
  cudaMemcpy(result, values + kCount - 1, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(values);
}

}  // namespace

int main(int argc, char** argv) {
  const bool overflow = argc > 1 && std::strcmp(argv[1], "overflow") == 0;
  int devices = 0;
  cudaGetDeviceCount(&devices);
  std::vector<int> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back(Work, i, devices, overflow, &results[static_cast<size_t>(i)]);
  for (std::thread& thread : threads) thread.join();
  int sum = 0, launches = 0;
  for (const int result : results) sum += result;
  for (int device = 0; device < devices; ++device) {
    int of_device = 0;
    cudaSetDevice(device);
    cudaMemcpyFromSymbol(&of_device, launches_of_device, sizeof(int));
    launches += of_device;
  }
  std::printf("%d devices, sum %d, %d launches, %s\n", devices, sum, launches,
              cudaGetErrorName(cudaGetLastError()));
  return 0;
}
