// Stream capture: what becomes a node, how streams join, and what breaks a capture.
#include <thread>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

CUevent NewEvent() {
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  return event;
}

int First(CUdeviceptr address) {
  int value = 0;
  REQUIRE(cuMemcpyDtoH(&value, address, sizeof(value)) == CUDA_SUCCESS);
  return value;
}

CUdeviceptr Zeros(size_t count) {
  const CUdeviceptr address = Allocate(count * sizeof(int));
  REQUIRE(cuMemsetD32(address, 0, count) == CUDA_SUCCESS);
  return address;
}

void Add(const Module& module, CUdeviceptr values, int amount, CUstream stream) {
  int count = 32;
  void* parameters[] = {&values, &count, &amount};
  REQUIRE(cuLaunchKernel(module.Function("add"), 1, 1, 1, 32, 1, 1, 0, stream, parameters,
                         nullptr) == CUDA_SUCCESS);
}

void Begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  REQUIRE(cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
}

void Replay(CUgraph graph, CUstream stream) {
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  REQUIRE(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
}

CUstreamCaptureStatus StatusOf(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  REQUIRE(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  return status;
}

size_t CountNodes(CUgraph graph) {
  size_t count = 0;
  REQUIRE(cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
  return count;
}

}  // namespace

TEST_CASE("captured work does not run until its graph is launched") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  Begin(stream);
  Add(module, values, 3, stream);
  Add(module, values, 4, stream);
  CHECK(StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(First(values) == 0);
  CHECK(CountNodes(graph) == 2);
  Replay(graph, stream);
  CHECK(First(values) == 7);
  Replay(graph, stream);
  CHECK(First(values) == 14);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("copies, fills and host functions are captured; a copy reads its source at the replay") {
  Context context;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  int source = 5, result = 0, calls = 0;
  Begin(stream);
  CHECK(cuMemsetD32Async(values, 1, 32, stream) == CUDA_SUCCESS);
  CHECK(cuMemcpyHtoDAsync(values, &source, 4, stream) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoHAsync(&result, values, 4, stream) == CUDA_SUCCESS);
  CHECK(cuLaunchHostFunc(
            stream, [](void* n) { ++*static_cast<int*>(n); }, &calls) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  size_t count = 4;
  CUgraphNode nodes[4];
  REQUIRE(cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
  const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST};
  for (int i = 0; i < 4; ++i) {
    CUgraphNodeType type;
    CHECK(cuGraphNodeGetType(nodes[i], &type) == CUDA_SUCCESS);
    CHECK(type == expected[i]);
  }
  source = 6;
  Replay(graph, stream);
  CHECK(result == 6);
  CHECK(calls == 1);
}

TEST_CASE("a second stream joins through an event and must be joined back") {
  Context context;
  Module module;
  const CUdeviceptr a = Zeros(32), b = Zeros(32);
  const CUstream origin = NewStream(), other = NewStream();
  const CUevent fork = NewEvent(), join = NewEvent();
  Begin(origin);
  Add(module, a, 1, origin);
  CHECK(cuEventRecord(fork, origin) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
  CHECK(StatusOf(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  Add(module, b, 2, other);
  CHECK(cuEventRecord(join, other) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(origin, join, 0) == CUDA_SUCCESS);
  Add(module, a, 10, origin);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(other, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(cuStreamEndCapture(origin, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(origin);
  Add(module, a, 1, origin);
  CHECK(cuEventRecord(fork, origin) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
  Add(module, b, 2, other);
  CHECK(cuEventRecord(join, other) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(origin, join, 0) == CUDA_SUCCESS);
  Add(module, a, 10, origin);
  REQUIRE(cuStreamEndCapture(origin, &graph) == CUDA_SUCCESS);
  size_t count = 0;
  CHECK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 3);  // fork, join, and the origin's own order
  CHECK(StatusOf(other) == CU_STREAM_CAPTURE_STATUS_NONE);
  Replay(graph, origin);
  CHECK(First(a) == 11);
  CHECK(First(b) == 2);
}

TEST_CASE("work that was not joined fails the capture") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream origin = NewStream(), other = NewStream();
  const CUevent fork = NewEvent();
  Begin(origin);
  CHECK(cuEventRecord(fork, origin) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
  Add(module, values, 2, other);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(origin, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(graph == nullptr);
  // Both streams work as before.
  Add(module, values, 2, other);
  CHECK(cuStreamSynchronize(other) == CUDA_SUCCESS);
  CHECK(First(values) == 2);
}

TEST_CASE("waiting for a capturing stream or a captured event breaks the capture") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  CUgraph graph = nullptr;
  Begin(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(cuMemsetD32Async(values, 1, 32, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == nullptr);
  Begin(stream);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(stream);
  CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(stream);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("an event recorded outside of the capture is isolated from it") {
  Context context;
  const CUstream stream = NewStream(), other = NewStream();
  const CUevent event = NewEvent();
  CHECK(cuEventRecord(event, other) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  Begin(stream);
  CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // As an external event it becomes a node.
  Begin(stream);
  CHECK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL) == CUDA_SUCCESS);
  CHECK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(CountNodes(graph) == 2);
  Replay(graph, stream);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
}

TEST_CASE("two captures cannot be merged") {
  Context context;
  const CUstream first = NewStream(), second = NewStream();
  const CUevent event = NewEvent();
  CUgraph graph = nullptr;
  Begin(first);
  Begin(second);
  CHECK(cuEventRecord(event, first) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(second, event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CHECK(cuStreamEndCapture(first, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuStreamEndCapture(second, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("the legacy stream cannot be captured, nor used beside a capturing blocking stream") {
  Context context;
  const CUdeviceptr values = Zeros(32);
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  Begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUstreamCaptureStatus status;
  CHECK(cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(StatusOf(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(cuMemsetD32Async(values, 1, 32, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  const CUstream free_running = NewStream(CU_STREAM_NON_BLOCKING);
  Begin(free_running, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuMemsetD32Async(values, 1, 32, nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(free_running, &graph) == CUDA_SUCCESS);
}

TEST_CASE("unsafe calls follow the modes of the capture and of the thread") {
  Context context;
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUdeviceptr memory = 0;
  const auto allocate_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUdeviceptr address = 0;
      REQUIRE(cuCtxSetCurrent(context.handle()) == CUDA_SUCCESS);
      result = cuMemAlloc(&address, 64);
    }).join();
    return result;
  };
  Begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(allocate_elsewhere() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CHECK(allocate_elsewhere() == CUDA_SUCCESS);
  CHECK(cuMemAlloc(&memory, 64) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuMemAlloc(&memory, 64) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  Begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(cuMemAlloc(&memory, 64) == CUDA_SUCCESS);
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

TEST_CASE("waiting, asking, unloading, registering memory and limits are unsafe calls, too") {
  // As measured on an H200 (driver 580): each fails and invalidates, unless the mode is relaxed.
  Context context;
  const CUstream stream = NewStream();
  const CUstream other = NewStream();
  const CUevent event = NewEvent();
  CUgraph graph = nullptr;
  alignas(4096) static char memory[4096];
  const auto check = [&](auto call) {
    Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK(call() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(call() == CUDA_SUCCESS);
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  };
  check([&] { return cuStreamSynchronize(other); });
  check([&] { return cuStreamQuery(other); });
  check([&] { return cuEventSynchronize(event); });
  check([&] { return cuEventQuery(event); });
  check([&] { return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); });
  check([&] { return cuMemHostRegister_v2(memory, sizeof memory, 0); });
  CHECK(cuMemHostUnregister(memory) == CUDA_SUCCESS);
  constexpr char kText[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, kText) == CUDA_SUCCESS);
  check([&] { return cuModuleUnload(module); });
  CUlibrary library = nullptr;
  REQUIRE(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  check([&] { return cuLibraryUnload(library); });
}

TEST_CASE("asking a captured stream for its flags invalidates the capture in every mode") {
  Context context;
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  unsigned flags = 0;
  CHECK(cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS);
  Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(cuStreamGetFlags(stream, &flags) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("another thread cannot end a capture unless it is relaxed") {
  Context context;
  const CUstream stream = NewStream();
  const auto end_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUgraph graph = nullptr;
      REQUIRE(cuCtxSetCurrent(context.handle()) == CUDA_SUCCESS);
      result = cuStreamEndCapture(stream, &graph);
    }).join();
    return result;
  };
  CUgraph graph = nullptr;
  Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CHECK(end_elsewhere() == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(end_elsewhere() == CUDA_SUCCESS);
}

TEST_CASE("capture state is told and its dependencies can be changed") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  Begin(stream);
  Add(module, values, 1, stream);
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count) ==
        CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(id != 0);
  REQUIRE(count == 1);
  // A node of the program's own, which the stream's next node follows instead.
  CUgraphNode own = nullptr;
  REQUIRE(cuGraphAddEmptyNode(&own, graph, nodes, count) == CUDA_SUCCESS);
  CHECK(cuStreamUpdateCaptureDependencies(stream, &own, nullptr, 1,
                                          CU_STREAM_SET_CAPTURE_DEPENDENCIES) == CUDA_SUCCESS);
  Add(module, values, 1, stream);
  CHECK(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count) ==
        CUDA_SUCCESS);
  CUgraphNode before = nullptr;
  size_t one = 1;
  CHECK(cuGraphNodeGetDependencies(nodes[0], &before, nullptr, &one) == CUDA_SUCCESS);
  CHECK(before == own);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

TEST_CASE("a capture can go into a graph that is there already") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  CUgraph graph = nullptr, same = nullptr;
  CUgraphNode first = nullptr;
  REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddEmptyNode(&first, graph, nullptr, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                      CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  Add(module, values, 9, stream);
  CHECK(cuStreamEndCapture(stream, &same) == CUDA_SUCCESS);
  CHECK(same == graph);
  CHECK(CountNodes(graph) == 2);
  Replay(graph, stream);
  CHECK(First(values) == 9);
}

TEST_CASE("a graph launched while capturing becomes a child graph") {
  Context context;
  Module module;
  const CUdeviceptr values = Zeros(32);
  const CUstream stream = NewStream();
  CUgraph inner = nullptr, outer = nullptr;
  Begin(stream);
  Add(module, values, 3, stream);
  REQUIRE(cuStreamEndCapture(stream, &inner) == CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiate(&executable, inner, 0) == CUDA_SUCCESS);
  Begin(stream);
  CHECK(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  Add(module, values, 20, stream);
  REQUIRE(cuStreamEndCapture(stream, &outer) == CUDA_SUCCESS);
  CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
  CHECK(CountNodes(outer) == 2);
  CHECK(First(values) == 0);
  Replay(outer, stream);
  CHECK(First(values) == 23);
}

TEST_CASE("stream-ordered allocations are captured with their frees") {
  Context context;
  Module module;
  const CUdeviceptr out = Zeros(32);
  const CUstream stream = NewStream();
  CUdeviceptr scratch = 0;
  Begin(stream);
  REQUIRE(cuMemAllocAsync(&scratch, 128, stream) == CUDA_SUCCESS);
  CHECK(cuMemsetD32Async(scratch, 5, 32, stream) == CUDA_SUCCESS);
  Add(module, scratch, 2, stream);
  CHECK(cuMemcpyDtoDAsync(out, scratch, 128, stream) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(scratch, stream) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(CountNodes(graph) == 5);
  Replay(graph, stream);
  CHECK(First(out) == 7);
  Replay(graph, stream);
  CHECK(First(out) == 7);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}
