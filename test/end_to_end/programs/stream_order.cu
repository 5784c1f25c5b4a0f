// Work in several streams, one way of ordering it (or not) at a time: `stream_order NAME`. What a
// program does besides CUDA calls (locks, flags, conditions) is part of it: the tool cannot see it.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

constexpr int kCount = 256;
constexpr size_t kBytes = kCount * sizeof(float);

__global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
__global__ void copy(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
__global__ void spin(float* x, int rounds) {
  float value = x[threadIdx.x];
  for (int i = 0; i < rounds; i++) value = value * 1.0001f + 0.5f;
  x[threadIdx.x] = value;
}

struct Setting {
  float *x, *out, *scratch, *pinned;
  cudaStream_t s, t;
  cudaEvent_t e, f;
  std::vector<float> pageable = std::vector<float>(kCount, 1.f);

  Setting() {
    cudaMalloc(&x, kBytes);
    cudaMalloc(&out, kBytes);
    cudaMalloc(&scratch, kBytes);
    cudaMallocHost(&pinned, kBytes);
    std::memset(pinned, 0, kBytes);
    cudaMemset(x, 0, kBytes);
    cudaMemset(scratch, 0, kBytes);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&f, cudaEventDisableTiming);
    cudaDeviceSynchronize();
  }
};

// A gate that threads open and wait for, unseen by CUDA.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  void Open() {
    std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
  }
};
static void CUDART_CB OpenGate(void* gate) { static_cast<Gate*>(gate)->Open(); }
static void CUDART_CB OpenGateBack(cudaStream_t, cudaError_t, void* gate) {
  static_cast<Gate*>(gate)->Open();
}

// ---- in order
static void host_function_tells_the_host(Setting& v) {
  Gate gate;
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaLaunchHostFunc(v.s, OpenGate, &gate);
  gate.Wait();
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void callback_tells_the_host(Setting& v) {
  Gate gate;
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaStreamAddCallback(v.s, OpenGateBack, &gate, 0);
  gate.Wait();
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void host_node_of_a_graph_tells_the_host(Setting& v) {
  Gate gate;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(v.s, cudaStreamCaptureModeThreadLocal);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaLaunchHostFunc(v.s, OpenGate, &gate);
  cudaStreamEndCapture(v.s, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, v.s);
  gate.Wait();
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}
static void two_threads_take_turns(Setting& v) {
  Gate gate;
  std::thread other([&] {
    gate.Wait();
    copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
  });
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaStreamSynchronize(v.s);
  gate.Open();
  other.join();
}
static void one_thread_waits_for_another_threads_work(Setting& v) {
  std::thread other([&] { fill<<<1, kCount, 0, v.s>>>(v.x, 1); });
  other.join();
  cudaStreamSynchronize(v.s);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void free_waits_for_everything(Setting& v) {
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaFree(v.scratch);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void copy_to_the_host_has_returned(Setting& v) {
  cudaMemcpyAsync(v.pageable.data(), v.x, kBytes, cudaMemcpyDeviceToHost, v.s);
  fill<<<1, kCount, 0, v.t>>>(v.x, 1);
}
static void pinned_copy_has_returned(Setting& v) {
  cudaMemcpy(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void memset_of_pinned_memory_has_returned(Setting& v) {
  cudaMemset(v.pinned, 1, kBytes);
  cudaMemcpyAsync(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice, v.t);
}
static void elapsed_time_was_told(Setting& v) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, v.s);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaEventRecord(end, v.s);
  float milliseconds = 0;
  while (cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady) {
  }
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void value_in_memory_orders(Setting& v) {
  unsigned* flag;
  cudaMalloc(&flag, 4);
  cudaMemset(flag, 0, 4);
  cudaDeviceSynchronize();
  cuStreamWaitValue32(v.t, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_GEQ);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cuStreamWriteValue32(v.s, reinterpret_cast<CUdeviceptr>(flag), 1, 0);
}
static void one_graph_in_two_streams(Setting& v) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(v.s, cudaStreamCaptureModeThreadLocal);
  spin<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaStreamEndCapture(v.s, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, v.s);
  cudaGraphLaunch(exec, v.t);
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}
static void event_of_a_graph(Setting& v) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(v.s, cudaStreamCaptureModeThreadLocal);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaEventRecordWithFlags(v.e, v.s, cudaEventRecordExternal);
  cudaStreamEndCapture(v.s, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphLaunch(exec, v.s);
  cudaStreamWaitEvent(v.t, v.e, 0);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}
static void branches_of_a_graph_join(Setting& v) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(v.s, cudaStreamCaptureModeThreadLocal);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaEventRecord(v.e, v.s);
  cudaStreamWaitEvent(v.t, v.e, 0);
  copy<<<1, kCount, 0, v.s>>>(v.x, v.out);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.scratch);
  cudaEventRecord(v.f, v.t);
  cudaStreamWaitEvent(v.s, v.f, 0);
  fill<<<1, kCount, 0, v.s>>>(v.x, 2);
  cudaStreamEndCapture(v.s, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  for (int i = 0; i < 3; i++) cudaGraphLaunch(exec, v.s);
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}
static void pool_hands_memory_on(Setting& v) {
  for (int i = 0; i < 4; i++) {
    float *a, *b;
    cudaMallocAsync(&a, kBytes, v.s);
    fill<<<1, kCount, 0, v.s>>>(a, 1);
    cudaEventRecord(v.e, v.s);
    cudaStreamWaitEvent(v.t, v.e, 0);
    copy<<<1, kCount, 0, v.t>>>(a, v.out);
    cudaFreeAsync(a, v.t);
    cudaMallocAsync(&b, kBytes, v.t);
    fill<<<1, kCount, 0, v.t>>>(b, 2);
    cudaFreeAsync(b, v.t);
    cudaStreamSynchronize(v.t);
  }
}
static void stream_was_made_again(Setting& v) {
  for (int i = 0; i < 20; i++) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    spin<<<1, kCount, 0, stream>>>(v.x, 1);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}
static void kernel_writes_the_source_behind_the_copy(Setting& v) {
  cudaMemcpyAsync(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice, v.s);
  fill<<<1, kCount, 0, v.s>>>(v.pinned, 3);
  cudaStreamSynchronize(v.s);
}
static void device_writes_the_source_before_the_copy(Setting& v) {
  spin<<<1, kCount, 0, v.s>>>(v.scratch, 200);
  cudaMemsetAsync(v.x, 5, kBytes, v.s);
  cudaMemcpyAsync(v.pinned, v.x, kBytes, cudaMemcpyDeviceToHost, v.s);
  cudaMemcpyAsync(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice, v.s);
  cudaStreamSynchronize(v.s);
}
static void source_changes_after_the_wait(Setting& v) {
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < kCount; k++) v.pinned[k] = i + k;
    cudaMemcpyAsync(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice, v.s);
    cudaStreamSynchronize(v.s);
  }
}
static void devices_copy_in_turn(Setting& v) {
  float* there;
  cudaSetDevice(1);
  cudaMalloc(&there, kBytes);
  cudaSetDevice(0);
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaMemcpyPeer(there, 1, v.x, 0, kBytes);
  cudaSetDevice(1);
  float* out;
  cudaMalloc(&out, kBytes);
  copy<<<1, kCount>>>(there, out);
  cudaDeviceSynchronize();
  cudaSetDevice(0);
}

// ---- not in order
static void pageable_copy_may_be_under_way(Setting& v) {
  cudaMemcpy(v.x, v.pageable.data(), kBytes, cudaMemcpyHostToDevice);
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void used_before_it_is_allocated(Setting& v) {
  float* a;
  cudaMallocAsync(&a, kBytes, v.s);
  fill<<<1, kCount, 0, v.t>>>(a, 1);
  cudaDeviceSynchronize();
  cudaFreeAsync(a, v.s);
}
static void source_was_refilled(Setting& v) {
  spin<<<1, kCount, 0, v.s>>>(v.scratch, 200);
  cudaMemcpyAsync(v.x, v.pinned, kBytes, cudaMemcpyHostToDevice, v.s);
  for (int k = 0; k < kCount; k++) v.pinned[k] = 7;
  cudaStreamSynchronize(v.s);
  v.pageable[0] = v.pinned[0];
}
static void target_was_given_back(Setting& v) {
  cudaMemcpyAsync(v.pinned, v.x, kBytes, cudaMemcpyDeviceToHost, v.s);
  cudaFreeHost(v.pinned);
}
static void host_function_of_another_stream(Setting& v) {
  Gate gate;
  fill<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaLaunchHostFunc(v.t, OpenGate, &gate);
  gate.Wait();
  copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
}
static void devices_do_not_wait(Setting& v) {
  cudaStream_t there;
  float* out;
  cudaSetDevice(1);
  cudaDeviceEnablePeerAccess(0, 0);
  cudaStreamCreate(&there);
  cudaMalloc(&out, kBytes);
  cudaSetDevice(0);
  fill<<<1, kCount>>>(v.x, 1);
  cudaSetDevice(1);
  cudaMemcpyPeerAsync(out, 1, v.x, 0, kBytes, there);
  cudaDeviceSynchronize();
  cudaSetDevice(0);
}

// ---- synchronisation, needed and not
static void second_wait_is_redundant(Setting& v) {
  for (int i = 0; i < 4; i++) {
    spin<<<1, kCount, 0, v.s>>>(v.x, 1);
    cudaStreamSynchronize(v.s);
    cudaDeviceSynchronize();
  }
}
static void second_wait_came_once(Setting& v) {
  spin<<<1, kCount, 0, v.s>>>(v.x, 1);
  cudaStreamSynchronize(v.s);
  cudaDeviceSynchronize();
}
static void wait_is_for_another_stream(Setting& v) {
  for (int i = 0; i < 4; i++) {
    fill<<<1, kCount, 0, v.s>>>(v.x, i);
    cudaStreamSynchronize(v.s);
    copy<<<1, kCount, 0, v.t>>>(v.x, v.out);
    cudaStreamSynchronize(v.t);
  }
}
static void wait_is_for_the_clock(Setting& v) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int i = 0; i < 4; i++) {
    cudaMemcpy(v.x, v.pageable.data(), kBytes, cudaMemcpyHostToDevice);
    cudaEventRecord(begin);
    spin<<<1, kCount>>>(v.x, 1);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
  }
}
static void wait_is_for_pinned_results(Setting& v) {
  for (int i = 0; i < 4; i++) {
    fill<<<1, kCount, 0, v.s>>>(v.pinned, i);
    cudaStreamSynchronize(v.s);
    if (v.pinned[3] != i) std::printf("wrong value\n");
    cudaMemcpyAsync(v.pageable.data(), v.x, kBytes, cudaMemcpyDeviceToHost, v.s);
    cudaStreamSynchronize(v.s);
  }
}
static void wait_before_a_copy_to_the_host(Setting& v) {
  float* host;
  cudaMallocHost(&host, kBytes);
  for (int i = 0; i < 4; i++) {
    spin<<<1, kCount, 0, v.s>>>(v.x, 1);
    cudaStreamSynchronize(v.s);
    cudaMemcpyAsync(host, v.x, kBytes, cudaMemcpyDeviceToHost, v.s);
    cudaStreamSynchronize(v.s);
  }
}

#define CASE(name) \
  { #name, name }
static const struct {
  const char* name;
  void (*run)(Setting&);
} kCases[] = {
    CASE(host_function_tells_the_host),
    CASE(callback_tells_the_host),
    CASE(host_node_of_a_graph_tells_the_host),
    CASE(two_threads_take_turns),
    CASE(one_thread_waits_for_another_threads_work),
    CASE(free_waits_for_everything),
    CASE(copy_to_the_host_has_returned),
    CASE(pinned_copy_has_returned),
    CASE(memset_of_pinned_memory_has_returned),
    CASE(elapsed_time_was_told),
    CASE(value_in_memory_orders),
    CASE(one_graph_in_two_streams),
    CASE(event_of_a_graph),
    CASE(branches_of_a_graph_join),
    CASE(pool_hands_memory_on),
    CASE(stream_was_made_again),
    CASE(kernel_writes_the_source_behind_the_copy),
    CASE(device_writes_the_source_before_the_copy),
    CASE(source_changes_after_the_wait),
    CASE(devices_copy_in_turn),
    CASE(pageable_copy_may_be_under_way),
    CASE(used_before_it_is_allocated),
    CASE(source_was_refilled),
    CASE(target_was_given_back),
    CASE(host_function_of_another_stream),
    CASE(devices_do_not_wait),
    CASE(second_wait_is_redundant),
    CASE(second_wait_came_once),
    CASE(wait_is_for_another_stream),
    CASE(wait_is_for_the_clock),
    CASE(wait_is_for_pinned_results),
    CASE(wait_before_a_copy_to_the_host),
};

int main(int argc, char** argv) {
  for (const auto& one : kCases) {
    if (argc != 2 || std::strcmp(argv[1], one.name) != 0) continue;
    Setting setting;
    one.run(setting);
    cudaError_t status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaGetLastError();
    if (status == cudaErrorNotReady) status = cudaSuccess;  // the answer of a question
    std::printf("%s\n", cudaGetErrorName(status));
    return 0;
  }
  return 2;
}
