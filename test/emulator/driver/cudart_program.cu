// A run-time API program with one small case per argument; what it prints is compared by
// cudart_test.cc.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__device__ int scale = 2;
__constant__ int offsets[4];
__managed__ int managed_total = 10;

__global__ void scale_and_shift(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = values[i] * scale + offsets[i % 4];
}

__global__ void add_managed(int amount) { managed_total += amount; }

template <class T>
__global__ void fill(T* values, T value) {
  values[threadIdx.x] = value;
}

__global__ void write_far(int* values) { values[1ll << 30] = 1; }

__global__ void __launch_bounds__(64) bounded() {}

static void Say(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
}

static void Basics() {
  std::vector<int> values(100);
  for (int i = 0; i < 100; ++i) values[i] = i;
  int* device = nullptr;
  Say("malloc", cudaMalloc(&device, 400));
  Say("copy in", cudaMemcpy(device, values.data(), 400, cudaMemcpyHostToDevice));
  const int shifts[4] = {1000, 2000, 3000, 4000};
  Say("symbol in", cudaMemcpyToSymbol(offsets, shifts, sizeof(shifts)));
  scale_and_shift<<<4, 32>>>(device, 100);
  Say("launch", cudaGetLastError());
  Say("copy out", cudaMemcpy(values.data(), device, 400, cudaMemcpyDefault));
  std::printf("%d %d %d\n", values[0], values[1], values[99]);
  int read = 0;
  Say("symbol out", cudaMemcpyFromSymbol(&read, offsets, sizeof(int), 2 * sizeof(int)));
  void* address = nullptr;
  size_t bytes = 0;
  Say("symbol address", cudaGetSymbolAddress(&address, scale));
  Say("symbol size", cudaGetSymbolSize(&bytes, offsets));
  std::printf("%d %d %zu\n", read, address != nullptr, bytes);
  Say("free", cudaFree(device));
}

static void Managed() {
  managed_total += 1;
  add_managed<<<1, 1>>>(5);
  Say("sync", cudaDeviceSynchronize());
  std::printf("%d\n", managed_total);
  int* both = nullptr;
  Say("managed", cudaMallocManaged(&both, 128));
  fill<<<1, 32>>>(both, 3);
  Say("sync", cudaDeviceSynchronize());
  std::printf("%d\n", both[31]);
}

static void Streams() {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  Say("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Say("event", cudaEventCreate(&start));
  Say("event", cudaEventCreate(&stop));
  float* device = nullptr;
  Say("malloc async", cudaMallocAsync(&device, 128, stream));
  Say("record", cudaEventRecord(start, stream));
  fill<<<1, 32, 0, stream>>>(device, 1.5f);
  Say("record", cudaEventRecord(stop, stream));
  float out[32] = {};
  Say("copy", cudaMemcpyAsync(out, device, 128, cudaMemcpyDeviceToHost, stream));
  int calls = 0;
  Say("host function", cudaLaunchHostFunc(
                           stream, [](void* n) { ++*static_cast<int*>(n); }, &calls));
  Say("callback",
      cudaStreamAddCallback(
          stream, [](cudaStream_t, cudaError_t, void* n) { ++*static_cast<int*>(n); }, &calls, 0));
  Say("free async", cudaFreeAsync(device, stream));
  Say("sync", cudaStreamSynchronize(stream));
  float milliseconds = -1;
  Say("elapsed", cudaEventElapsedTime(&milliseconds, start, stop));
  std::printf("%g %d %d\n", out[31], calls, milliseconds >= 0);
}

static void Queries() {
  int count = 0, device = -1, runtime = 0, driver = 0;
  Say("count", cudaGetDeviceCount(&count));
  Say("device", cudaGetDevice(&device));
  Say("set device", cudaSetDevice(0));
  Say("set device 1", cudaSetDevice(1));
  Say("last error", cudaGetLastError());
  Say("last error", cudaGetLastError());
  Say("runtime", cudaRuntimeGetVersion(&runtime));
  Say("driver", cudaDriverGetVersion(&driver));
  cudaDeviceProp properties;
  Say("properties", cudaGetDeviceProperties(&properties, 0));
  std::printf("%d %d %d %d | %d.%d %d %d %zu\n", count, device, runtime, driver, properties.major,
              properties.minor, properties.multiProcessorCount, properties.warpSize,
              properties.sharedMemPerBlockOptin);
  cudaFuncAttributes attributes;
  Say("attributes", cudaFuncGetAttributes(&attributes, bounded));
  int blocks = 0, min_grid = 0, block = 0;
  Say("occupancy", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 64, 0));
  Say("potential", cudaOccupancyMaxPotentialBlockSize(&min_grid, &block, bounded, 0, 0));
  std::printf("%d %d %d\n", attributes.maxThreadsPerBlock, blocks, block);
  int host = 0;
  cudaPointerAttributes pointer;
  Say("pointer", cudaPointerGetAttributes(&pointer, &host));
  std::printf("%d %d\n", int(pointer.type), pointer.hostPointer == &host);
}

static void Errors() {
  bounded<<<1, 2048>>>();
  Say("block too large", cudaGetLastError());
  bounded<<<0, 32>>>();
  Say("no grid", cudaGetLastError());
  bounded<<<1, 128>>>();
  Say("launch bounds", cudaGetLastError());
  bounded<<<1, 32, 1 << 20>>>();
  Say("shared memory", cudaGetLastError());
  Say("kind", cudaMemcpy(nullptr, nullptr, 4, static_cast<cudaMemcpyKind>(9)));
  Say("symbol", cudaMemcpyToSymbol(reinterpret_cast<const void*>(&Errors), nullptr, 4));
  Say("function",
      cudaLaunchKernel(reinterpret_cast<const void*>(&Errors), 1, 1, nullptr, 0, nullptr));
  int* device = nullptr;
  cudaMalloc(&device, 64);
  Say("pitch", cudaMemcpy2D(device, 2, device, 8, 4, 2, cudaMemcpyDeviceToDevice));
  Say("external", cudaDestroyExternalMemory(nullptr));
  Say("ok", cudaDeviceSynchronize());
}

static void Fault() {
  int* device = nullptr;
  Say("malloc", cudaMalloc(&device, 64));
  write_far<<<1, 1>>>(device);
  Say("launch", cudaGetLastError());
  Say("sync", cudaDeviceSynchronize());
  Say("peek", cudaPeekAtLastError());
  Say("last error", cudaGetLastError());
  Say("malloc", cudaMalloc(&device, 64));
  std::printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  Say("reset", cudaDeviceReset());
  Say("malloc", cudaMalloc(&device, 128));
  fill<<<1, 32>>>(device, 1);
  Say("sync", cudaDeviceSynchronize());
}

// Runs after the main thread's thread_local objects are gone, as destructors of static objects do.
static void UseAtExit() {
  std::vector<void*> reuse_freed_blocks;
  for (size_t bytes = 8; bytes <= 512; bytes += 8)
    reuse_freed_blocks.push_back(std::calloc(1, bytes));
  int* device = nullptr;
  Say("malloc", cudaMalloc(&device, 128));
  fill<<<1, 32>>>(device, 9);
  int out = 0;
  Say("copy", cudaMemcpy(&out, device, 4, cudaMemcpyDeviceToHost));
  std::printf("%d\n", out);
  for (void* block : reuse_freed_blocks) std::free(block);
}

static void AtExit() {
  bounded<<<1, 32>>>();
  Say("sync", cudaDeviceSynchronize());
  std::atexit(UseAtExit);
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (std::strcmp(name, "basics") == 0) Basics();
  if (std::strcmp(name, "managed") == 0) Managed();
  if (std::strcmp(name, "streams") == 0) Streams();
  if (std::strcmp(name, "queries") == 0) Queries();
  if (std::strcmp(name, "errors") == 0) Errors();
  if (std::strcmp(name, "fault") == 0) Fault();
  if (std::strcmp(name, "at_exit") == 0) AtExit();
  return 0;
}
