// Captures a kernel into a graph and replays it three times; with "overflow" the kernel writes one
// element too many.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void add(int* values, int count, int amount) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += amount;
}

int main(int argc, char** argv) {
  const bool overflow = argc > 1 && std::strcmp(argv[1], "overflow") == 0;
  const int count = 1000;
  int* values = nullptr;
  cudaMalloc(&values, count * sizeof(int));
  cudaMemset(values, 0, count * sizeof(int));
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  add<<<4, 256, 0, stream>>>(values, overflow ? count + 1 : count, 1);
  add<<<4, 256, 0, stream>>>(values, count, 10);
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(executable, stream);
  const cudaError_t done = cudaStreamSynchronize(stream);
  int last = 0;
  cudaMemcpy(&last, values + count - 1, sizeof(last), cudaMemcpyDeviceToHost);
  std::printf("%s %s %s %d\n", cudaGetErrorName(captured), cudaGetErrorName(made),
              cudaGetErrorName(done), last);
  return 0;
}
