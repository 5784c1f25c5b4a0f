// Stream-ordered memory out of pools that the program makes itself.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#define CHECK(call)                                               \
  do {                                                            \
    const cudaError_t result = (call);                            \
    if (result != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(result)); \
      return 1;                                                   \
    }                                                             \
  } while (0)

__global__ void Fill(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "right";
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  cudaStream_t stream, other;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&other));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  int last = -1;
  // Sizes change, so that the pool gives the same memory to different allocations.
  for (int round = 0; round < 30; round++) {
    const int n = 100 + 37 * (round % 7);
    int *a = nullptr, *b = nullptr;
    CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&a), n * sizeof(int), pool, stream));
    CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&b), 2 * n * sizeof(int), pool, stream));
    Fill<<<8, 64, 0, stream>>>(a, n);
    Fill<<<16, 64, 0, stream>>>(b, 2 * n);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK(cudaFreeAsync(b, other));
    CHECK(cudaMemcpyAsync(&last, a + n - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (round == 20 && std::strcmp(name, "overflow") == 0) Fill<<<8, 64, 0, stream>>>(a, n + 1);
    CHECK(cudaFreeAsync(a, stream));
    if (round == 20 && std::strcmp(name, "freed") == 0) Fill<<<8, 64, 0, stream>>>(a, n);
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaMemPoolDestroy(pool));
  std::printf("%d\n", last);
  return 0;
}
