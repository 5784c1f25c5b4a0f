// Graphs made of explicit nodes: building, instantiating, launching, changing.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

std::vector<int> Read(CUdeviceptr address, size_t count) {
  std::vector<int> values(count);
  REQUIRE(cuMemcpyDtoH(values.data(), address, count * sizeof(int)) == CUDA_SUCCESS);
  return values;
}

CUdeviceptr Zeros(size_t count) {
  const CUdeviceptr address = Allocate(count * sizeof(int));
  REQUIRE(cuMemsetD32(address, 0, count) == CUDA_SUCCESS);
  return address;
}

class Graph {
 public:
  Graph() { REQUIRE(cuGraphCreate(&handle_, 0) == CUDA_SUCCESS); }
  ~Graph() { cuGraphDestroy(handle_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  operator CUgraph() const { return handle_; }  // NOLINT(google-explicit-constructor)

 private:
  CUgraph handle_ = nullptr;
};

class Executable {
 public:
  explicit Executable(CUgraph graph, unsigned flags = 0) {
    REQUIRE(cuGraphInstantiate(&handle_, graph, flags) == CUDA_SUCCESS);
  }
  ~Executable() { cuGraphExecDestroy(handle_); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  operator CUgraphExec() const { return handle_; }  // NOLINT(google-explicit-constructor)

 private:
  CUgraphExec handle_ = nullptr;
};

// add(values, count, amount) on one block.
struct AddCall {
  CUdeviceptr values;
  int count, amount;
  void* parameters[3] = {&values, &count, &amount};
  CUDA_KERNEL_NODE_PARAMS params{};
  AddCall(const Module& module, CUdeviceptr v, int c, int a) : values(v), count(c), amount(a) {
    params.func = module.Function("add");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = 32;
    params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
  }
};

CUgraphNode AddKernel(CUgraph graph, const AddCall& call, std::vector<CUgraphNode> behind = {}) {
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddKernelNode(&node, graph, behind.data(), behind.size(), &call.params) ==
          CUDA_SUCCESS);
  return node;
}

CUgraphNode AddFill(CUgraph graph, CUdeviceptr to, unsigned value, size_t count,
                    std::vector<CUgraphNode> behind = {}) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = to;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = count;
  fill.height = 1;
  CUgraphNode node = nullptr;
  CUcontext context = nullptr;
  REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddMemsetNode(&node, graph, behind.data(), behind.size(), &fill, context) ==
          CUDA_SUCCESS);
  return node;
}

CUDA_MEMCPY3D Line(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = bytes;
  copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
  return copy;
}

void Run(CUgraphExec executable, CUstream stream = nullptr) {
  REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("a graph of a fill, a kernel and a copy runs in the order of its edges, every launch") {
  Context context;
  Module module;
  const CUdeviceptr a = Zeros(32), b = Zeros(32);
  Graph graph;
  const CUgraphNode fill = AddFill(graph, a, 5, 32);
  const CUgraphNode kernel = AddKernel(graph, AddCall(module, a, 32, 3), {fill});
  const CUDA_MEMCPY3D copy = Line(b, a, 128);
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddMemcpyNode(&node, graph, &kernel, 1, &copy, context.handle()) == CUDA_SUCCESS);
  Executable executable(graph);
  Run(executable);
  CHECK(Read(b, 32)[31] == 8);
  REQUIRE(cuMemsetD32(b, 0, 32) == CUDA_SUCCESS);
  Run(executable);
  CHECK(Read(b, 32)[31] == 8);
}

TEST_CASE("kernel parameters are copied when the node is added") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  AddCall call(module, values, 32, 3);
  AddKernel(graph, call);
  call.amount = 1000;
  Executable executable(graph);
  Run(executable);
  CHECK(Read(values, 1)[0] == 3);
}

TEST_CASE("changing a graph after it was instantiated does not change the executable") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  const CUgraphNode node = AddKernel(graph, AddCall(module, values, 32, 1));
  Executable executable(graph);
  const AddCall other(module, values, 32, 100);
  CHECK(cuGraphKernelNodeSetParams(node, &other.params) == CUDA_SUCCESS);
  Run(executable);
  CHECK(Read(values, 1)[0] == 1);
  Executable again(graph);
  Run(again);
  CHECK(Read(values, 1)[0] == 101);
}

TEST_CASE("an executable's kernel gets new parameters") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  const CUgraphNode node = AddKernel(graph, AddCall(module, values, 32, 1));
  Executable executable(graph);
  AddCall other(module, values, 16, 7);
  CHECK(cuGraphExecKernelNodeSetParams(executable, node, &other.params) == CUDA_SUCCESS);
  Run(executable);
  CHECK(Read(values, 32)[15] == 7);
  CHECK(Read(values, 32)[16] == 0);
  other.params.blockDimX = 4096;
  CHECK(cuGraphExecKernelNodeSetParams(executable, node, &other.params) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an executable's fill, copy and host function get new parameters") {
  Context context;
  const CUdeviceptr a = Zeros(8), b = Zeros(8);
  Graph graph;
  const CUgraphNode fill = AddFill(graph, a, 1, 8);
  CUgraphNode copy_node = nullptr, host_node = nullptr;
  CUDA_MEMCPY3D copy = Line(b, a, 16);
  REQUIRE(cuGraphAddMemcpyNode(&copy_node, graph, &fill, 1, &copy, context.handle()) ==
          CUDA_SUCCESS);
  int calls = 0, other_calls = 0;
  CUDA_HOST_NODE_PARAMS host{[](void* n) { ++*static_cast<int*>(n); }, &calls};
  REQUIRE(cuGraphAddHostNode(&host_node, graph, &copy_node, 1, &host) == CUDA_SUCCESS);
  Executable executable(graph);
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = a;
  params.value = 9;
  params.elementSize = 4;
  params.width = 8;
  params.height = 1;
  CHECK(cuGraphExecMemsetNodeSetParams(executable, fill, &params, context.handle()) ==
        CUDA_SUCCESS);
  copy = Line(b, a, 32);
  CHECK(cuGraphExecMemcpyNodeSetParams(executable, copy_node, &copy, context.handle()) ==
        CUDA_SUCCESS);
  host.userData = &other_calls;
  CHECK(cuGraphExecHostNodeSetParams(executable, host_node, &host) == CUDA_SUCCESS);
  Run(executable);
  CHECK(Read(b, 8)[7] == 9);
  CHECK(calls == 0);
  CHECK(other_calls == 1);
}

TEST_CASE("disabled nodes do nothing until they are enabled again") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  const CUgraphNode first = AddKernel(graph, AddCall(module, values, 32, 1));
  AddKernel(graph, AddCall(module, values, 32, 10), {first});
  Executable executable(graph);
  unsigned enabled = 2;
  CHECK(cuGraphNodeSetEnabled(executable, first, 0) == CUDA_SUCCESS);
  CHECK(cuGraphNodeGetEnabled(executable, first, &enabled) == CUDA_SUCCESS);
  CHECK(enabled == 0);
  Run(executable);
  CHECK(Read(values, 1)[0] == 10);
  CHECK(cuGraphNodeSetEnabled(executable, first, 1) == CUDA_SUCCESS);
  Run(executable);
  CHECK(Read(values, 1)[0] == 21);
}

TEST_CASE("an update takes over the parameters of a graph of the same shape") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const auto build = [&](CUgraph graph, int amount) {
    const CUgraphNode fill = AddFill(graph, values, unsigned(amount), 32);
    AddKernel(graph, AddCall(module, values, 32, amount), {fill});
  };
  Graph first, second, longer, different;
  build(first, 1);
  build(second, 50);
  build(longer, 1);
  AddFill(longer, values, 0, 32);
  AddKernel(different, AddCall(module, values, 32, 1),
            {AddKernel(different, AddCall(module, values, 32, 1))});
  Executable executable(first);
  CUgraphExecUpdateResultInfo info{};
  CHECK(cuGraphExecUpdate(executable, second, &info) == CUDA_SUCCESS);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  Run(executable);
  CHECK(Read(values, 1)[0] == 100);
  CHECK(cuGraphExecUpdate(executable, longer, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(cuGraphExecUpdate(executable, different, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  Run(executable);
  CHECK(Read(values, 1)[0] == 100);
}

TEST_CASE("a launch comes after earlier work of its stream and before later work") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  Graph graph;
  AddKernel(graph, AddCall(module, values, 32, 1));
  Executable executable(graph);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(cuMemsetD32Async(values, unsigned(i), 32, stream) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    int out = -1;
    REQUIRE(cuMemcpyDtoHAsync(&out, values, 4, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(out == i + 1);
  }
}

TEST_CASE("a child graph runs as one node, and the node holds a copy of it") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph child, parent;
  AddKernel(child, AddCall(module, values, 32, 2));
  const CUgraphNode fill = AddFill(parent, values, 40, 32);
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddChildGraphNode(&node, parent, &fill, 1, child) == CUDA_SUCCESS);
  AddKernel(child, AddCall(module, values, 32, 1000));  // not in the copy
  AddKernel(parent, AddCall(module, values, 32, 100), {node});
  CUgraph inside = nullptr;
  CHECK(cuGraphChildGraphNodeGetGraph(node, &inside) == CUDA_SUCCESS);
  CHECK(inside != CUgraph(child));
  CHECK(cuGraphDestroy(inside) == CUDA_ERROR_INVALID_VALUE);
  Executable executable(parent);
  Run(executable);
  CHECK(Read(values, 1)[0] == 142);
}

TEST_CASE("nodes, roots, edges and dependencies are told") {
  Context context;
  Graph graph;
  CUgraphNode a = nullptr, b = nullptr, c = nullptr;
  REQUIRE(cuGraphAddEmptyNode(&a, graph, nullptr, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddEmptyNode(&b, graph, &a, 1) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddEmptyNode(&c, graph, nullptr, 0) == CUDA_SUCCESS);
  CHECK(cuGraphAddDependencies(graph, &b, &c, nullptr, 1) == CUDA_SUCCESS);
  CHECK(cuGraphAddDependencies(graph, &c, &a, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);  // a cycle
  size_t count = 0;
  CHECK(cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 3);
  CUgraphNode roots[3] = {b, b, b};
  count = 3;
  CHECK(cuGraphGetRootNodes(graph, roots, &count) == CUDA_SUCCESS);
  CHECK(count == 1);
  CHECK(roots[0] == a);
  CHECK(roots[1] == nullptr);
  CUgraphNode from[4], to[4];
  CUgraphEdgeData data[4];
  count = 4;
  CHECK(cuGraphGetEdges(graph, from, to, data, &count) == CUDA_SUCCESS);
  CHECK(count == 2);
  CHECK(from[1] == b);
  CHECK(to[1] == c);
  CUgraphNode dependency = nullptr;
  count = 1;
  CHECK(cuGraphNodeGetDependencies(c, &dependency, nullptr, &count) == CUDA_SUCCESS);
  CHECK(dependency == b);
  CHECK(cuGraphRemoveDependencies(graph, &b, &c, nullptr, 1) == CUDA_SUCCESS);
  CHECK(cuGraphNodeGetDependentNodes(b, nullptr, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 0);
  CHECK(cuGraphDestroyNode(b) == CUDA_SUCCESS);
  CHECK(cuGraphNodeGetDependentNodes(a, nullptr, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 0);
  CUgraphNodeType type;
  CHECK(cuGraphNodeGetType(b, &type) == CUDA_ERROR_INVALID_VALUE);  // gone
}

TEST_CASE("a clone is independent and maps nodes to the original's") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  const CUgraphNode node = AddKernel(graph, AddCall(module, values, 32, 3));
  CUgraph clone = nullptr;
  REQUIRE(cuGraphClone(&clone, graph) == CUDA_SUCCESS);
  CUgraphNode in_clone = nullptr;
  CHECK(cuGraphNodeFindInClone(&in_clone, node, clone) == CUDA_SUCCESS);
  CHECK(in_clone != node);
  const AddCall other(module, values, 32, 8);
  CHECK(cuGraphKernelNodeSetParams(in_clone, &other.params) == CUDA_SUCCESS);
  Executable executable(graph), executable_of_clone(clone);
  Run(executable);
  CHECK(Read(values, 1)[0] == 3);
  Run(executable_of_clone);
  CHECK(Read(values, 1)[0] == 11);
  CHECK(cuGraphDestroy(clone) == CUDA_SUCCESS);
}

TEST_CASE("a kernel node gives back its parameters") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  const AddCall call(module, values, 32, 77);
  const CUgraphNode node = AddKernel(graph, call);
  CUDA_KERNEL_NODE_PARAMS params{};
  CHECK(cuGraphKernelNodeGetParams(node, &params) == CUDA_SUCCESS);
  CHECK(params.func == call.params.func);
  CHECK(params.blockDimX == 32);
  CHECK(*static_cast<int*>(params.kernelParams[2]) == 77);
  // What was read can be set again.
  CHECK(cuGraphKernelNodeSetParams(node, &params) == CUDA_SUCCESS);
}

TEST_CASE("memory of an allocation node is the kernels' from the node to the free node only") {
  Context context;
  Module module;
  Graph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  alloc.bytesize = 128;
  CUgraphNode alloc_node = nullptr, copy_node = nullptr, free_node = nullptr;
  REQUIRE(cuGraphAddMemAllocNode(&alloc_node, graph, nullptr, 0, &alloc) == CUDA_SUCCESS);
  REQUIRE(alloc.dptr != 0);
  const CUgraphNode fill = AddFill(graph, alloc.dptr, 1, 32, {alloc_node});
  const CUgraphNode kernel = AddKernel(graph, AddCall(module, alloc.dptr, 32, 4), {fill});
  const CUdeviceptr out = Zeros(32);
  const CUDA_MEMCPY3D copy = Line(out, alloc.dptr, 128);
  REQUIRE(cuGraphAddMemcpyNode(&copy_node, graph, &kernel, 1, &copy, context.handle()) ==
          CUDA_SUCCESS);
  REQUIRE(cuGraphAddMemFreeNode(&free_node, graph, &copy_node, 1, alloc.dptr) == CUDA_SUCCESS);
  CHECK(cuGraphAddMemFreeNode(&free_node, graph, nullptr, 0, alloc.dptr) ==
        CUDA_ERROR_INVALID_VALUE);  // twice
  Executable executable(graph);
  cuuint64_t used = 1;
  Run(executable);
  Run(executable);
  CHECK(Read(out, 32)[31] == 5);
  CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
  CHECK(used == 0);
  CUdeviceptr stale = alloc.dptr;
  long long index = 0;  // NOLINT(google-runtime-int): parameter of store
  void* parameters[] = {&stale, &index};
  CHECK(Launch(module.Function("store"), 1, 1, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("memory that a graph leaves allocated is freed by the program before the next launch") {
  Context context;
  Graph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  alloc.bytesize = 4096;
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &alloc) == CUDA_SUCCESS);
  Executable executable(graph);
  Run(executable);
  CHECK(cuGraphLaunch(executable, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32(alloc.dptr, 3, 16) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(alloc.dptr, nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  Run(executable);
  CHECK(cuMemFree(alloc.dptr) == CUDA_SUCCESS);
  Executable relaunched(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  Run(relaunched);
  Run(relaunched);
  CHECK(cuMemFree(alloc.dptr) == CUDA_SUCCESS);
}

TEST_CASE("an event recorded by a graph can be waited for in a stream") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  CUevent event = nullptr;
  CUstream stream = nullptr, other = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  Graph graph;
  const CUgraphNode kernel = AddKernel(graph, AddCall(module, values, 32, 6));
  CUgraphNode record = nullptr;
  REQUIRE(cuGraphAddEventRecordNode(&record, graph, &kernel, 1, event) == CUDA_SUCCESS);
  Executable executable(graph);
  REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(other, event, 0) == CUDA_SUCCESS);
  int out = 0;
  REQUIRE(cuMemcpyDtoHAsync(&out, values, 4, other) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(other) == CUDA_SUCCESS);
  CHECK(out == 6);
  CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
}

TEST_CASE("a kernel that faults in a graph leaves its error in the context") {
  Context context;
  Module module;
  Graph graph;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = module.Function("stop");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS);
  Executable executable(graph);
  CHECK(cuGraphLaunch(executable, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
}

namespace {

// A kernel that counts *counter down and keeps the loop going until it is 0; `handle` is a
// conditional handle.
constexpr char kCountdown[] = R"(
.version 8.0
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry countdown(.param .u64 countdown_counter, .param .u64 countdown_handle)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [countdown_counter];
  ld.param.u64 %rd2, [countdown_handle];
  ld.global.u32 %r1, [%rd1];
  sub.u32 %r1, %r1, 1;
  st.global.u32 [%rd1], %r1;
  {
    .param .b64 p0;
    .param .b32 p1;
    st.param.b64 [p0], %rd2;
    st.param.b32 [p1], %r1;
    call.uni cudaGraphSetConditional, (p0, p1);
  }
  ret;
}
)";

}  // namespace

TEST_CASE("a WHILE node repeats its body until a kernel clears the condition") {
  Context context;
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, kCountdown) == CUDA_SUCCESS);
  CUfunction countdown = nullptr;
  REQUIRE(cuModuleGetFunction(&countdown, module, "countdown") == CUDA_SUCCESS);
  Module kernels;
  CUdeviceptr counter = Zeros(1), rounds = Zeros(32);
  Graph graph;
  CUgraphConditionalHandle handle = 0;
  REQUIRE(cuGraphConditionalHandleCreate(&handle, graph, context.handle(), 1,
                                         CU_GRAPH_COND_ASSIGN_DEFAULT) == CUDA_SUCCESS);
  const CUgraphNode start = AddFill(graph, counter, 5, 1);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 1;
  params.conditional.ctx = context.handle();
  CUgraphNode loop = nullptr;
  REQUIRE(cuGraphAddNode(&loop, graph, &start, nullptr, 1, &params) == CUDA_SUCCESS);
  CUgraph body = params.conditional.phGraph_out[0];
  const CUgraphNode count = AddKernel(body, AddCall(kernels, rounds, 1, 1));
  void* parameters[] = {&counter, &handle};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = countdown;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddKernelNode(&node, body, &count, 1, &kernel) == CUDA_SUCCESS);
  Executable executable(graph);
  Run(executable);
  CHECK(Read(rounds, 1)[0] == 5);
  Run(executable);
  CHECK(Read(rounds, 1)[0] == 10);
}

TEST_CASE("an IF node runs the body that its condition chooses") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  for (unsigned condition : {0u, 1u}) {
    Graph graph;
    CUgraphConditionalHandle handle = 0;
    REQUIRE(cuGraphConditionalHandleCreate(&handle, graph, context.handle(), condition,
                                           CU_GRAPH_COND_ASSIGN_DEFAULT) == CUDA_SUCCESS);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 2;
    params.conditional.ctx = context.handle();
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params) == CUDA_SUCCESS);
    AddFill(params.conditional.phGraph_out[0], values, 100, 32);
    AddFill(params.conditional.phGraph_out[1], values, 200, 32);
    Executable executable(graph);
    Run(executable);
    CHECK(Read(values, 1)[0] == (condition != 0 ? 100 : 200));
  }
}

TEST_CASE("user objects live as long as a graph or an executable holds them") {
  Context context;
  int destroyed = 0;
  CUuserObject object = nullptr;
  const auto destroy = [](void* n) { ++*static_cast<int*>(n); };
  REQUIRE(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) ==
          CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
  CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuUserObjectRetain(object, 1) == CUDA_SUCCESS);  // still there
  CHECK(cuUserObjectRelease(object, 1) == CUDA_SUCCESS);
  CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
  // The destructor runs behind all earlier host functions.
  int later = 0;
  REQUIRE(cuLaunchHostFunc(
              nullptr, [](void* n) { *static_cast<int*>(n) = 1; }, &later) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  CHECK(later == 1);
  CHECK(destroyed == 1);
  CHECK(cuUserObjectRetain(object, 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a graph prints itself for Graphviz") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  Graph graph;
  AddKernel(graph, AddCall(module, values, 32, 1), {AddFill(graph, values, 1, 32)});
  const std::string path = "graph_test.dot";
  CHECK(cuGraphDebugDotPrint(graph, path.c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) ==
        CUDA_SUCCESS);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(text.starts_with("digraph"));
  CHECK(text.find("MEMSET") != std::string::npos);
  CHECK(text.find("add\\n<<<(1,1,1),(32,1,1),0>>>") != std::string::npos);
  CHECK(text.find("->") != std::string::npos);
}
