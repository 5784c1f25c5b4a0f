// A small run-time API program: two kernels, synchronous and stream-ordered memory, a call into a function that is not
// inlined. Prints the result. `runtime_api overflow` reads one element too many.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

__device__ __noinline__ float element(const float* values, int i) { return values[i]; }

__global__ void scale(float* values, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= factor;
}

__global__ void differences(const float* values, float* out, int n, int last) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && i + 1 <= last) out[i] = element(values, i + 1) - element(values, i);
}

int main(int argc, char** argv) {
  const int n = 1000;
  const int last = argc > 1 && std::strcmp(argv[1], "overflow") == 0 ? n : n - 1;
  std::vector<float> host(n);
  for (int i = 0; i < n; i++) host[i] = float(i);
  float *values = nullptr, *out = nullptr;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMalloc(&values, n * sizeof(float));
  cudaMallocAsync(&out, n * sizeof(float), stream);
  cudaMemcpyAsync(values, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream);
  cudaMemsetAsync(out, 0, n * sizeof(float), stream);
  scale<<<4, 256, 0, stream>>>(values, n, 2.f);
  differences<<<4, 256, 0, stream>>>(values, out, n, last);
  cudaMemcpyAsync(host.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaFreeAsync(out, stream);
  cudaStreamSynchronize(stream);
  double sum = 0;
  for (int i = 0; i < n - 1; i++) sum += host[i];
  std::printf("sum %.1f %s\n", sum, cudaGetErrorString(cudaGetLastError()));
  cudaFree(values);
  cudaStreamDestroy(stream);
  return 0;
}
