// Mistakes on the host that a program can ignore, and calls that fail as a way of asking.
// host_faults MISTAKE
#include <cuda_runtime.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

__global__ void scale(float* values) {
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = values[threadIdx.x];
  values[threadIdx.x] = scratch[threadIdx.x] * 2;
}

__global__ void __launch_bounds__(128) small_blocks(float* values) { values[threadIdx.x] = 1; }

namespace {

constexpr int kBig = 60 * 1024;

void Ignore(cudaError_t) {}

// Calls that say no without anything being wrong.
void Ask(float* values) {
  cudaPointerAttributes attributes = {};
  int on_stack = 0;
  Ignore(cudaPointerGetAttributes(&attributes, &on_stack));
  cudaStream_t stream;
  Ignore(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 20; ++i) scale<<<1, 32, 1024, stream>>>(values);
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
  cudaEvent_t event;
  Ignore(cudaEventCreate(&event));
  scale<<<1, 32, 1024, stream>>>(values);
  Ignore(cudaEventRecord(event, stream));
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  std::vector<char> host(1 << 16);
  Ignore(cudaHostRegister(host.data(), host.size(), 0));
  Ignore(cudaHostRegister(host.data(), host.size(), 0));
  Ignore(cudaHostUnregister(host.data()));
  Ignore(cudaHostUnregister(host.data()));
  void* none = nullptr;
  Ignore(cudaMalloc(&none, size_t{1} << 50));  // a pool finds out how much there is
  cudaFuncAttributes of_kernel = {};
  Ignore(cudaFuncGetAttributes(&of_kernel, reinterpret_cast<const void*>(&Ignore)));
  int blocks = 0;
  Ignore(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 4096, 0));
  Ignore(cudaGetLastError());
  Ignore(cudaEventDestroy(event));
  Ignore(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mistake = argc > 1 ? argv[1] : "";
  float* values = nullptr;
  std::vector<float> host(1024, 1.0f);
  Ignore(cudaMalloc(&values, 1024 * sizeof(float)));
  Ignore(cudaMemcpy(values, host.data(), 1024 * sizeof(float), cudaMemcpyHostToDevice));
  if (mistake == "shared") {
    scale<<<1, 32, kBig>>>(values);
  } else if (mistake == "shared-allowed") {
    Ignore(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, kBig));
    scale<<<1, 32, kBig>>>(values);
  } else if (mistake == "shared-impossible") {
    Ignore(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
  } else if (mistake == "block") {
    scale<<<1, 2048, 1024>>>(values);
  } else if (mistake == "bounds") {
    small_blocks<<<1, 512>>>(values);
  } else if (mistake == "empty") {
    scale<<<0, 32, 1024>>>(values);
  } else if (mistake == "grid") {
    scale<<<dim3(1, 70000), 32, 1024>>>(values);
  } else if (mistake == "cooperative") {
    void* parameters[] = {&values};
    Ignore(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(scale), 100000, 32, parameters, 1024,
                                       nullptr));
  } else if (mistake == "device") {  // a stream of one device, launched to with another current
    cudaStream_t other;
    Ignore(cudaSetDevice(1));
    Ignore(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    Ignore(cudaSetDevice(0));
    scale<<<1, 32, 1024, other>>>(values);
  } else if (mistake == "copy") {
    for (int i = 0; i < 3; ++i) {
      Ignore(cudaMemcpy(host.data(), values, size_t{1} << 40, cudaMemcpyDeviceToHost));
    }
  } else if (mistake == "twice") {
    float* other = nullptr;
    Ignore(cudaMalloc(&other, 4000));
    Ignore(cudaFree(other));
    Ignore(cudaFree(other));
  } else if (mistake == "inside") {
    Ignore(cudaFree(values + 16));
  } else if (mistake == "ask") {
    Ask(values);
  } else if (mistake == "leak") {
    float *device = nullptr, *pinned = nullptr, *managed = nullptr;
    Ignore(cudaMalloc(&device, 1000));
    Ignore(cudaMallocHost(&pinned, 2000));
    Ignore(cudaMallocManaged(&managed, 3000));
  } else if (mistake == "leak-reset") {
    float* device = nullptr;
    Ignore(cudaMalloc(&device, 1000));
    Ignore(cudaFree(values));
    Ignore(cudaDeviceReset());
    return 0;
  } else if (mistake == "killed" || mistake == "aborted") {  // nobody waits for the kernel
    scale<<<1, 32, 1024>>>(values + 1024 - 16);
    if (mistake == "aborted") std::abort();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    raise(SIGKILL);
  } else if (mistake == "late") {  // freed by the destructor of a global object
    static struct Owner {
      float* memory = nullptr;
      ~Owner() { Ignore(cudaFree(memory)); }
    } owner;
    Ignore(cudaMalloc(&owner.memory, 1000));
  }
  const cudaError_t done = cudaDeviceSynchronize();
  Ignore(cudaMemcpy(host.data(), values, sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("%s %g\n", cudaGetErrorName(done), host[0]);
  Ignore(cudaFree(values));
  return 0;
}
