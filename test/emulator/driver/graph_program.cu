// A run-time API program about graphs and textures; what it prints is compared by program_test.cc.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

__global__ void add(int* values, int amount) { values[threadIdx.x] += amount; }

__global__ void sum(const int* a, const int* b, int* out) {
  out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

// Reads between the texels and doubles the array through a surface.
__global__ void sample(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float* out) {
  const float x[] = {0.5f, 1.0f, 2.0f, 2.0f, 100.0f};
  const float y[] = {0.5f, 0.5f, 0.5f, 1.5f, 100.0f};
  for (int i = 0; i < 5; ++i) out[i] = tex2D<float>(texture, x[i], y[i]);
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 4; ++column) {
      float value;
      surf2Dread(&value, surface, column * 4, row);
      surf2Dwrite(value * 2, surface, column * 4, row);
    }
  }
}

static void Say(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
}

static int First(const int* device) {
  int value = -1;
  cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
  return value;
}

static cudaGraph_t CaptureTwo(cudaStream_t stream, int* device, int amount, bool talks) {
  cudaGraph_t graph = nullptr;
  const cudaError_t begin = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  add<<<1, 32, 0, stream>>>(device, amount);
  add<<<1, 32, 0, stream>>>(device, amount);
  const cudaError_t end = cudaStreamEndCapture(stream, &graph);
  if (talks) {
    Say("begin", begin);
    Say("end", end);
  }
  return graph;
}

static void Capture() {
  int* device = nullptr;
  cudaMalloc(&device, 128);
  cudaMemset(device, 0, 128);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaGraph_t graph = CaptureTwo(stream, device, 5, true);
  cudaGraphExec_t executable = nullptr;
  Say("instantiate", cudaGraphInstantiate(&executable, graph, 0));
  std::printf("after capture: %d\n", First(device));
  Say("launch", cudaGraphLaunch(executable, stream));
  Say("launch", cudaGraphLaunch(executable, stream));
  cudaStreamSynchronize(stream);
  std::printf("after two replays: %d\n", First(device));

  cudaGraph_t other = CaptureTwo(stream, device, 50, false);
  cudaGraphExecUpdateResultInfo info;
  const cudaError_t updated = cudaGraphExecUpdate(executable, other, &info);
  std::printf("update: %s %d\n", cudaGetErrorName(updated), int(info.result));
  Say("launch", cudaGraphLaunch(executable, stream));
  cudaStreamSynchronize(stream);
  std::printf("after the update: %d\n", First(device));

  size_t count = 2;
  cudaGraphNode_t nodes[2];
  cudaGraphGetNodes(graph, nodes, &count);
  cudaKernelNodeParams params;
  cudaGraphKernelNodeGetParams(nodes[0], &params);
  const bool named = params.func == reinterpret_cast<void*>(&add);
  int amount = 950;
  void* arguments[] = {&device, &amount};
  params.kernelParams = arguments;
  Say("set params", cudaGraphExecKernelNodeSetParams(executable, nodes[0], &params));
  Say("launch", cudaGraphLaunch(executable, stream));
  cudaStreamSynchronize(stream);
  std::printf("after new parameters: %d\n", First(device));
  std::printf("function is scale: %d\n", named ? 1 : 0);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaGraphDestroy(other);
}

static void Branches() {
  int *a = nullptr, *b = nullptr, *out = nullptr;
  cudaMalloc(&a, 128);
  cudaMalloc(&b, 128);
  cudaMalloc(&out, 128);
  cudaStream_t first, second;
  cudaStreamCreate(&first);
  cudaStreamCreate(&second);
  cudaEvent_t fork, join;
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(a, 0, 128, first);
  cudaEventRecord(fork, first);
  cudaStreamWaitEvent(second, fork, 0);
  cudaMemsetAsync(b, 0, 128, second);
  for (int i = 0; i < 10; ++i) {
    add<<<1, 32, 0, first>>>(a, 1 << i);
    add<<<1, 32, 0, second>>>(b, 2 << i);
  }
  add<<<1, 32, 0, first>>>(a, 3);
  cudaEventRecord(join, second);
  cudaStreamWaitEvent(first, join, 0);
  sum<<<1, 32, 0, first>>>(a, b, out);
  cudaStreamEndCapture(first, &graph);
  cudaGraphExec_t executable = nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, first);
  cudaGraphLaunch(executable, first);
  cudaStreamSynchronize(first);
  int values[32];
  cudaMemcpy(values, out, 128, cudaMemcpyDeviceToHost);
  std::printf("sum: %d %d\n", values[0], values[31]);
}

static void Textures() {
  const float texels[] = {0, 1, 2, 3, 4, 5, 9, 7};
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  Say("array", cudaMallocArray(&array, &format, 4, 2, cudaArraySurfaceLoadStore));
  Say("copy in", cudaMemcpy2DToArray(array, 0, 0, texels, 16, 16, 2, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc description{};
  description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
  description.filterMode = cudaFilterModeLinear;
  description.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  cudaSurfaceObject_t surface = 0;
  Say("texture", cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  Say("surface", cudaCreateSurfaceObject(&surface, &resource));
  float* out = nullptr;
  cudaMalloc(&out, 20);
  sample<<<1, 1>>>(texture, surface, out);
  Say("sync", cudaDeviceSynchronize());
  float values[5];
  cudaMemcpy(values, out, 20, cudaMemcpyDeviceToHost);
  std::printf("%g %g %g %g %g\n", values[0], values[1], values[2], values[3] - 1.5f, values[4]);
  float back[8];
  Say("copy out", cudaMemcpy2DFromArray(back, 16, array, 0, 0, 16, 2, cudaMemcpyDeviceToHost));
  std::printf("%g %g %g\n", back[0], back[1], back[7]);
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (std::strcmp(name, "capture") == 0) Capture();
  if (std::strcmp(name, "branches") == 0) Branches();
  if (std::strcmp(name, "textures") == 0) Textures();
  return 0;
}
