// Ways to make a kernel node of a graph other than capturing it, and graphs that outlive what they
// use. graph_nodes WAY [overflow]: with "overflow" the kernel that runs at the replays writes one
// element too many. Prints whether the program sees its own kernel and the results it expects.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <string>

__global__ void add(int* values, int count, int amount) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += amount;
}

namespace {

constexpr int kCount = 1000;
int* g_values = nullptr;
int g_failures = 0;

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(result));
  ++g_failures;
}
#define CHECK(call) Check(call, #call)

struct Arguments {
  int* values = g_values;
  int count;
  int amount;
  void* pointers[3] = {&values, &count, &amount};
  Arguments(int count, int amount) : count(count), amount(amount) {}
};

cudaKernelNodeParams Parameters(Arguments& arguments) {
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(add);
  parameters.gridDim = 4;
  parameters.blockDim = 256;
  parameters.kernelParams = arguments.pointers;
  return parameters;
}

cudaGraph_t Captured(cudaStream_t stream, int count, int amount) {
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  add<<<4, 256, 0, stream>>>(g_values, count, amount);
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

// The graph's first node, which is a kernel.
cudaGraphNode_t FirstNode(cudaGraph_t graph) {
  cudaGraphNode_t node = nullptr;
  size_t count = 1;
  CHECK(cudaGraphGetNodes(graph, &node, &count));
  return node;
}

void CheckOwnKernel(cudaGraphNode_t node, int amount) {
  cudaKernelNodeParams parameters = {};
  CHECK(cudaGraphKernelNodeGetParams(node, &parameters));
  if (parameters.func != reinterpret_cast<void*>(add)) {
    std::printf("the node holds another kernel\n");
    ++g_failures;
  } else if (*static_cast<int*>(parameters.kernelParams[2]) != amount) {
    std::printf("the node holds other parameters\n");
    ++g_failures;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argv[1];
  const int count = argc > 2 && std::strcmp(argv[2], "overflow") == 0 ? kCount + 1 : kCount;
  CHECK(cudaMalloc(&g_values, kCount * sizeof(int)));
  CHECK(cudaMemset(g_values, 0, kCount * sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr;
  Arguments right(kCount, 1), last(count, 1);
  cudaKernelNodeParams right_parameters = Parameters(right), last_parameters = Parameters(last);
  if (way == "explicit") {
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &last_parameters));
    last.count = last.amount = 0;  // the node has its copy
    CheckOwnKernel(node, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "any-node") {
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeKernel;
    any.kernel.func = reinterpret_cast<void*>(add);
    any.kernel.gridDim = 4;
    any.kernel.blockDim = 256;
    any.kernel.kernelParams = last.pointers;
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
#else
    CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &any));
#endif
    CheckOwnKernel(node, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "set-params") {
    graph = Captured(stream, kCount, 5);
    node = FirstNode(graph);
    CheckOwnKernel(node, 5);
    CHECK(cudaGraphKernelNodeSetParams(node, &last_parameters));
    CheckOwnKernel(node, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "hand-back") {  // what was read goes back with one value changed
    graph = Captured(stream, kCount, 5);
    node = FirstNode(graph);
    cudaKernelNodeParams read = {};
    CHECK(cudaGraphKernelNodeGetParams(node, &read));
    void* pointers[] = {read.kernelParams[0], &last.count, &last.amount};
    read.kernelParams = pointers;
    CHECK(cudaGraphKernelNodeSetParams(node, &read));
    CheckOwnKernel(node, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "exec-set-params") {
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &right_parameters));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &last_parameters));
  } else if (way == "update") {
    graph = Captured(stream, kCount, 5);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaGraph_t other = Captured(stream, count, 1);
    cudaGraphExecUpdateResultInfo outcome = {};
    CHECK(cudaGraphExecUpdate(exec, other, &outcome));
    CHECK(cudaGraphDestroy(other));
  } else if (way == "child") {  // in a clone of a graph with a child graph
    cudaGraph_t child = Captured(stream, count, 1), outer = nullptr;
    CHECK(cudaGraphCreate(&outer, 0));
    CHECK(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, child));
    CHECK(cudaGraphClone(&graph, outer));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "conditional") {  // the body runs because the handle's default value says so
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeConditional;
    any.conditional.handle = handle;
    any.conditional.type = cudaGraphCondTypeIf;
    any.conditional.size = 1;
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
#else
    CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &any));
#endif
    cudaGraph_t body = any.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeThreadLocal));
    add<<<4, 256, 0, stream>>>(g_values, count, 1);
    CHECK(cudaStreamEndCapture(stream, &body));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  } else if (way == "disabled") {
    CHECK(cudaGraphCreate(&graph, 0));
    Arguments never(kCount, 100);
    cudaKernelNodeParams never_parameters = Parameters(never);
    cudaGraphNode_t other = nullptr;
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &last_parameters));
    CHECK(cudaGraphAddKernelNode(&other, graph, nullptr, 0, &never_parameters));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphNodeSetEnabled(exec, other, 0));
  } else if (way == "freed" || way == "kept") {
    int* scratch = nullptr;
    CHECK(cudaMalloc(&scratch, kCount * sizeof(int)));
    CHECK(cudaMemset(scratch, 0, kCount * sizeof(int)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<4, 256, 0, stream>>>(g_values, kCount, 1);
    add<<<4, 256, 0, stream>>>(scratch, kCount, 1);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    if (way == "freed") CHECK(cudaFree(scratch));
  } else {
    return 2;
  }
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  int result = 0;
  CHECK(cudaMemcpy(&result, g_values + kCount - 1, sizeof(result), cudaMemcpyDeviceToHost));
  std::printf("%d failures, last value %d\n", g_failures, result);
  return 0;
}
