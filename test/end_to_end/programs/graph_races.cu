// Kernels of graphs that race, or do not. `graph_races MODE`; a mode that ends in "_right" has no race. Prints the last value.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(call)                                                          \
  do {                                                                       \
    const cudaError_t status = (call);                                       \
    if (status != cudaSuccess) {                                             \
      std::printf("line %d: %s\n", __LINE__, cudaGetErrorName(status));      \
      std::exit(1);                                                          \
    }                                                                        \
  } while (false)

constexpr int kThreads = 64;

__global__ void Write(int* x, int value) { x[threadIdx.x] = value; }
__global__ void Read(const int* x, int* out) { out[threadIdx.x] = x[kThreads - 1 - threadIdx.x]; }
__global__ void Reverse(int* x) {  // a race within the block
  __shared__ int tile[kThreads];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}
__global__ void ReverseRight(int* x) {
  __shared__ int tile[kThreads];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool right = mode.size() > 6 && mode.substr(mode.size() - 6) == "_right";
  const std::string what = right ? mode.substr(0, mode.size() - 6) : mode;
  int *x, *out;
  CHECK(cudaMalloc(&x, kThreads * sizeof(int)));
  CHECK(cudaMalloc(&out, kThreads * sizeof(int)));
  CHECK(cudaMemset(x, 0, kThreads * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  cudaStream_t s, t;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  cudaEvent_t fork, join;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  cudaGraph_t graph;
  cudaGraphExec_t exec;

  // Writer and reader in two branches; right: one behind the other.
  const auto capture_branches = [&](int value) {
    cudaGraph_t captured;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    if (!right) {
      CHECK(cudaEventRecord(fork, s));
      CHECK(cudaStreamWaitEvent(t, fork, 0));
    }
    Write<<<1, kThreads, 0, s>>>(x, value);
    if (right) {
      CHECK(cudaEventRecord(fork, s));
      CHECK(cudaStreamWaitEvent(t, fork, 0));
    }
    Read<<<1, kThreads, 0, t>>>(x, out);
    CHECK(cudaEventRecord(join, t));
    CHECK(cudaStreamWaitEvent(s, join, 0));
    CHECK(cudaStreamEndCapture(s, &captured));
    return captured;
  };
  const auto launch = [&](cudaStream_t stream, int times) {
    for (int i = 0; i < times; i++) CHECK(cudaGraphLaunch(exec, stream));
  };

  if (what == "branches") {
    graph = capture_branches(1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    launch(s, 3);
  } else if (what == "child") {  // the branches are in a child graph; another kernel comes behind it
    cudaGraph_t inner = capture_branches(1);
    cudaGraphNode_t child, behind;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddChildGraphNode(&child, graph, nullptr, 0, inner));
    int value = 2;
    void* arguments[] = {&x, &value};
    cudaKernelNodeParams node = {};
    node.func = reinterpret_cast<void*>(Write);
    node.gridDim = dim3(1);
    node.blockDim = dim3(kThreads);
    node.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&behind, graph, &child, 1, &node));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    launch(s, 2);
  } else if (what == "captured") {  // an instantiated graph that ran becomes a part of another one
    cudaGraph_t inner = capture_branches(1);
    cudaGraphExec_t inner_exec;
    CHECK(cudaGraphInstantiate(&inner_exec, inner, 0));
    CHECK(cudaGraphLaunch(inner_exec, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaGraphLaunch(inner_exec, s));
    CHECK(cudaGraphLaunch(inner_exec, s));
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    launch(s, 2);
  } else if (what == "update") {
    graph = capture_branches(1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int value = 2; value < 5; value++) {
      cudaGraph_t next = capture_branches(value);
      cudaGraphExecUpdateResultInfo info;
      CHECK(cudaGraphExecUpdate(exec, next, &info));
      CHECK(cudaGraphDestroy(next));
      launch(s, 1);
    }
  } else if (what == "streams") {  // the graph in one stream, a kernel in another
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    Write<<<1, kThreads, 0, s>>>(x, 1);
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
      launch(s, 1);
      if (right) {
        CHECK(cudaEventRecord(fork, s));
        CHECK(cudaStreamWaitEvent(t, fork, 0));
      }
      Read<<<1, kThreads, 0, t>>>(x, out);
      if (right) {
        CHECK(cudaEventRecord(join, t));
        CHECK(cudaStreamWaitEvent(s, join, 0));
      }
    }
  } else if (what == "shared") {  // a race within one kernel
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    Write<<<1, kThreads, 0, s>>>(x, 1);
    if (right) ReverseRight<<<1, kThreads, 0, s>>>(x);
    else Reverse<<<1, kThreads, 0, s>>>(x);
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    launch(s, 3);
  } else if (what == "alternating") {  // in two streams in turn: launches of one graph are in order
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    Write<<<1, kThreads, 0, s>>>(x, 1);
    Read<<<1, kThreads, 0, s>>>(x, out);
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 4; i++) launch(i % 2 == 0 ? s : t, 1);
  } else {
    std::printf("unknown mode\n");
    return 2;
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGraphExecDestroy(exec));
  int last = -1;
  CHECK(cudaMemcpy(&last, x, sizeof last, cudaMemcpyDeviceToHost));
  std::printf("last value %d\n", last);
  return 0;
}
