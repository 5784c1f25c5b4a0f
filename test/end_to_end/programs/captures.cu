// Launches that are captured, or cannot be, in programs whose host and device depend on each other,
// one case per argument; a second one says after how many milliseconds a kernel gets what it waits
// for. All but nobody_feeds are right.
#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

__global__ void wait_for(const unsigned* flag, unsigned* out) {
  if (threadIdx.x == 0) {
    while (*static_cast<const volatile unsigned*>(flag) == 0) {
    }
    __threadfence();
    *out = 1;
  }
}

__global__ void copy_and_use(const float* in, float* out) {
  __shared__ __align__(16) float tile[128];
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile + 4 * threadIdx.x));
  in += 4 * threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in));
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  out[threadIdx.x] = tile[127 - threadIdx.x];
}

// One row of 16 floats through a tensor map, waited for at an mbarrier.
__global__ void copy_row(const __grid_constant__ CUtensorMap map, float* out) {
  __shared__ __align__(128) float tile[16];
  __shared__ __align__(8) uint64_t barrier;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 64;" ::"r"(at) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(0), "r"(1), "r"(at)
        : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at)
        : "memory");
  }
  if (threadIdx.x < 16) out[threadIdx.x] = tile[threadIdx.x];
}

template <class T>
T* Zeros(size_t count) {
  T* memory = nullptr;
  cudaMalloc(&memory, count * sizeof(T));
  cudaMemset(memory, 0, count * sizeof(T));
  return memory;
}

static void SetLater(unsigned* flag, int milliseconds) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  const unsigned one = 1;
  cudaMemcpyAsync(flag, &one, sizeof(one), cudaMemcpyHostToDevice, stream);
  cudaStreamSynchronize(stream);
}

int main(int count, char** arguments) {
  const auto is = [&](const char* name) { return count > 1 && std::strcmp(arguments[1], name) == 0; };
  const int milliseconds = count > 2 ? std::atoi(arguments[2]) : 0;
  unsigned *const flag = Zeros<unsigned>(1), *const out = Zeros<unsigned>(1);
  float *const in = Zeros<float>(128), *const result = Zeros<float>(128);
  unsigned* const set = Zeros<unsigned>(1);
  cudaMemset(set, 1, sizeof(*set));
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  if (is("fed_by_copy")) {
    wait_for<<<1, 32, 0, stream>>>(flag, out);
    SetLater(flag, milliseconds);
  }
  if (is("fed_by_thread")) {
    wait_for<<<1, 32, 0, stream>>>(flag, out);
    std::thread thread([&] { SetLater(flag, milliseconds); });
    cudaStreamSynchronize(stream);
    thread.join();
  }
  if (is("nobody_feeds")) wait_for<<<1, 32>>>(flag, out);
  if (is("busy_stream")) {
    unsigned* mapped = nullptr;
    cudaHostAlloc(&mapped, sizeof(*mapped), cudaHostAllocMapped);
    *mapped = 0;
    wait_for<<<1, 32, 0, stream>>>(mapped, out);
    wait_for<<<1, 64, 0, stream>>>(set, out);
    *static_cast<volatile unsigned*>(mapped) = 1;
    cudaStreamSynchronize(stream);
  }
  if (is("graph")) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    copy_and_use<<<1, 32, 0, stream>>>(in, result);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphLaunch(executable, stream);
  }
  if (is("shapes")) {
    for (unsigned shared = 0; shared < 8; shared++)
      copy_and_use<<<1, 32, 16 * shared, stream>>>(in, result);
  }
  if (is("tensor_map")) {
    void* encode = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                     &found);
    CUtensorMap map;
    const cuuint64_t sizes[] = {16, 8}, strides[] = {64};
    const cuuint32_t box[] = {16, 1}, element_strides[] = {1, 1};
    if (encode == nullptr ||
        reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
            &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, in, sizes, strides, box, element_strides,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
            CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      return 1;
    }
    copy_row<<<1, 32, 0, stream>>>(map, result);
  }
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
