// Kernels of which there is only machine code: `sass_cases CASE wrong|right` runs one of them, with
// a fault or right. For the GPU run (sass_rows.py), built without PTX.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    const auto error = (call);                                                               \
    if (error != 0) std::printf("%s: error %d\n", #call, static_cast<int>(error));           \
  } while (0)

__device__ __noinline__ float fetch(const float* p, int i) {
  return p[i] * 2;  // fault: device_function
}
__global__ void device_function(const float* p, float* out, int shift) {
  out[threadIdx.x] = fetch(p, threadIdx.x + shift);
}

__device__ __forceinline__ void put(float* p, int i) {
  p[i] = 1;  // fault: inlined
}
__global__ void inlined(float* p, int shift) { put(p, threadIdx.x + shift); }

__global__ void tail_byte(char* p, int i) {
  p[i] = 1;  // fault: tail
}
__global__ void vector_load(const float4* p, float* out, int shift) {
  const float4 all = p[threadIdx.x + shift];  // fault: vector
  out[threadIdx.x] = all.x + all.y + all.z + all.w;
}
__global__ void add_atomically(int* p, int shift) {
  atomicAdd(p + threadIdx.x + shift, 1);  // fault: atomic
}
__global__ void async_copy(const float4* p, float* out, int shift) {
  __shared__ float4 buffer[32];
  __pipeline_memcpy_async(&buffer[threadIdx.x], p + threadIdx.x + shift, 16);  // fault: async_copy
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = buffer[threadIdx.x].x;
}
__global__ void bulk_copy(const float* p, float* out, int bytes) {
  __shared__ __align__(16) float buffer[2048];
  __shared__ uint64_t barrier;
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(buffer));
  const auto mbarrier = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(mbarrier));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(bytes));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to), "l"(p), "r"(bytes), "r"(mbarrier) : "memory");  // fault: bulk_copy
    asm volatile(
        "{\n.reg .pred p;\nw: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n@!p bra w;\n}" ::"r"(
            mbarrier) : "memory");
  }
  __syncthreads();
  out[threadIdx.x] = buffer[threadIdx.x];
}
__global__ void bulk_store(float* p, int bytes) {
  __shared__ __align__(16) float buffer[2048];
  for (int i = threadIdx.x; i < 2048; i += 32) buffer[i] = i;
  __syncwarp();
  asm volatile("fence.proxy.async;" ::: "memory");
  if (threadIdx.x == 0) {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(buffer));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(p), "r"(from),
                 "r"(bytes) : "memory");  // fault: bulk_store
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
// Pointers whose space the compiler does not know.
__device__ int* volatile any_pointer;
__global__ void generic_spaces(int* global, int* out, int shift) {
  __shared__ int shared[32];
  int local[8];
  for (int i = 0; i < 8; i++) local[i] = i;
  shared[threadIdx.x] = threadIdx.x;
  __syncwarp();
  int sum = 0;
  for (int turn = 0; turn < 3; turn++) {
    volatile int* p = turn == 0 ? shared : turn == 1 ? local : global + shift;
    sum += p[turn == 1 ? threadIdx.x % 8 : threadIdx.x];  // fault: generic
  }
  any_pointer = local;
  out[threadIdx.x] = sum;
}
__global__ void copy(const float* p, float* out) {
  out[threadIdx.x] = p[threadIdx.x];  // fault: graph node threads contexts
}
__global__ void all_together(const float* p, float* out, int shift) {
  cooperative_groups::this_grid().sync();
  out[threadIdx.x] = p[threadIdx.x + shift];  // fault: cooperative
}
__global__ void wild(float* p) {
  p[threadIdx.x] = 1;  // fault: wild
}
__global__ void many(float* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = 1;  // fault: many
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* name = argv[1];
  const bool wrong = std::strcmp(argv[2], "wrong") == 0;
  const int shift = wrong ? 1 : 0;
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  float *p, *out;
  CHECK(cudaMalloc(&p, 128));
  CHECK(cudaMalloc(&out, 128));
  CHECK(cudaMemset(p, 0, 128));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (is("device_function")) device_function<<<1, 32>>>(p, out, shift);
  if (is("inlined")) inlined<<<1, 32>>>(p, shift);
  if (is("tail")) {
    char* text;
    CHECK(cudaMalloc(&text, 13));
    tail_byte<<<1, 1>>>(text, 12 + shift);
  }
  if (is("vector")) vector_load<<<1, 8>>>(reinterpret_cast<float4*>(p), out, shift);
  if (is("atomic")) add_atomically<<<1, 32>>>(reinterpret_cast<int*>(p), shift);
  if (is("async_copy")) async_copy<<<1, 8>>>(reinterpret_cast<float4*>(p), out, shift);
  if (is("bulk_copy")) bulk_copy<<<1, 32>>>(p, out, 128 + 16 * shift);
  if (is("bulk_store")) bulk_store<<<1, 32>>>(p, 128 + 16 * shift);
  if (is("generic"))
    generic_spaces<<<1, 32>>>(reinterpret_cast<int*>(p), reinterpret_cast<int*>(out), shift);
  if (is("graph") || is("node")) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    if (is("graph")) {
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      copy<<<1, 32, 0, stream>>>(p, out);
      CHECK(cudaStreamEndCapture(stream, &graph));
    } else {
      CHECK(cudaGraphCreate(&graph, 0));
      void* arguments[] = {&p, &out};
      cudaKernelNodeParams parameters{};
      parameters.func = reinterpret_cast<void*>(copy);
      parameters.gridDim = dim3(1);
      parameters.blockDim = dim3(32);
      parameters.kernelParams = arguments;
      cudaGraphNode_t node;
      CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
    }
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (wrong) CHECK(cudaFree(p));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  if (is("cooperative")) {
    const float* from = p;
    int by = shift;
    void* arguments[] = {&from, &out, &by};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(all_together), dim3(2), dim3(32),
                                      arguments, 0, nullptr));
  }
  if (is("wild")) wild<<<1, 32>>>(wrong ? reinterpret_cast<float*>(8) : p);
  if (is("many")) {
    float* large;
    const int n = 1 << 20;
    CHECK(cudaMalloc(&large, n * sizeof(float) - 400));
    many<<<n / 256, 256>>>(large, wrong ? n : n - 100);
  }
  if (is("threads")) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
      threads.emplace_back([=] {
        float* own;
        CHECK(cudaMalloc(&own, 128));
        for (int turn = 0; turn < 50; turn++) {
          copy<<<1, 32, 0, cudaStreamPerThread>>>(own + (turn == 49 ? shift : 0), out);
          CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (is("contexts")) {
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 2; turn++) {
      CUcontext context;
      CUctxCreateParams parameters{};
      CHECK(cuCtxCreate(&context, &parameters, 0, 0));
      float *from, *to;
      CHECK(cudaMalloc(&from, 128));
      CHECK(cudaMalloc(&to, 128));
      copy<<<1, 32>>>(from + shift, to);
      CHECK(cudaDeviceSynchronize());
      CHECK(cuCtxDestroy(context));
    }
    return 0;
  }
  // One cubin, loaded, used and unloaded several times: what lies at an address changes.
  if (is("modules") && argc > 3) {
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 4; turn++) {
      CUmodule module;
      CUfunction function;
      CHECK(cuModuleLoad(&module, argv[3]));
      CHECK(cuModuleGetFunction(&function, module, turn % 2 == 0 ? "first" : "second"));
      float* from = p + (turn < 2 ? 0 : shift);
      void* arguments[] = {&from, &out};
      CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
      CHECK(cuCtxSynchronize());
      CHECK(cuModuleUnload(module));
    }
  }
  const cudaError_t end = cudaDeviceSynchronize();
  if (end != cudaSuccess) std::printf("ended with %s\n", cudaGetErrorName(end));
  return 0;
}
