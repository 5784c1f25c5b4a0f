// Launches that an instrumented kernel cannot decide, one case per argument: the CPU device has to
// run them once more. Lines that the tests name end in `// LINE name`.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

// cp.async without a wait for it: the words may not have arrived.
template <bool kWaits>
__global__ void copy_and_use(const float* in, float* out) {
  __shared__ __align__(16) float tile[128];
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile + 4 * threadIdx.x));
  in += 4 * threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in));  // LINE copy
  if (kWaits) asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  out[threadIdx.x] = tile[127 - threadIdx.x];  // LINE use
}

// A flag between two blocks: with a release or without one.
template <bool kReleases>
__global__ void hand_over(unsigned* data, unsigned* flag, unsigned* out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = 3 * threadIdx.x;  // LINE produce
    __syncthreads();
    if (threadIdx.x == 0) {
      if (kReleases) __threadfence();
      atomicExch(flag, 1u);
    }
  } else {
    if (threadIdx.x == 0) {
      while (atomicAdd(flag, 0u) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x];  // LINE consume
  }
}

// Right, and long on the CPU device.
__global__ void count_for_long(unsigned* counter, unsigned rounds) {
  for (unsigned i = 0; i < rounds; i++) {
    atomicAdd(counter, 1u);
    __threadfence();
  }
}

// Three bytes of each word are written, and all four decide a branch, or these three.
__global__ void write_most(unsigned char* words) {
  for (int i = 0; i < 3; i++) words[4 * threadIdx.x + i] = 1;
}
__global__ void use_words(const unsigned* words, unsigned mask, unsigned* out) {
  if ((words[threadIdx.x] & mask) == 0x10101) out[threadIdx.x] = 1;  // LINE words
}

__device__ const unsigned* pointer_in_module;
__global__ void through_module_variable(unsigned* out) {
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __threadfence_block();
  __syncthreads();
  atomicAdd(&sum, pointer_in_module[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) *out = sum;
}

// Two halves of a block wait at two barriers.
__global__ void two_barriers(unsigned* out) {
  if (threadIdx.x < 32) {
    asm volatile("barrier.sync 1, 64;" ::: "memory");  // LINE first half
  } else {
    asm volatile("barrier.sync 2, 64;" ::: "memory");  // LINE second half
  }
  out[threadIdx.x] = threadIdx.x;
}

template <class T>
T* Zeros(size_t count) {
  T* memory = nullptr;
  cudaMalloc(&memory, count * sizeof(T));
  cudaMemset(memory, 0, count * sizeof(T));
  return memory;
}

static void Copy(bool waits, size_t megabytes) {
  float* const in = Zeros<float>(megabytes << 18);
  float* const out = Zeros<float>(128);
  const auto kernel = waits ? copy_and_use<true> : copy_and_use<false>;
  kernel<<<1, 32>>>(in, out);  // LINE launch of copy
  cudaDeviceSynchronize();
}

static void HandOver(bool releases) {
  unsigned* const data = Zeros<unsigned>(64);  // LINE allocation
  unsigned *const flag = Zeros<unsigned>(1), *const out = Zeros<unsigned>(64);
  const auto kernel = releases ? hand_over<true> : hand_over<false>;
  for (int i = 0; i < 3; i++) {
    cudaMemset(flag, 0, sizeof(unsigned));
    kernel<<<2, 64>>>(data, flag, out);  // LINE launch of hand-over
    cudaDeviceSynchronize();
  }
}

int main(int count, char** arguments) {
  const auto is = [&](const char* name) {
    return count > 1 && std::strcmp(arguments[1], name) == 0;
  };
  if (is("copy")) Copy(false, 1);
  if (is("copy_waited")) Copy(true, 1);
  if (is("large")) Copy(false, 80);
  if (is("flag")) HandOver(false);
  if (is("flag_released")) HandOver(true);
  if (is("long")) count_for_long<<<1, 32>>>(Zeros<unsigned>(1), 100000);
  if (is("words") || is("words_masked")) {
    unsigned *words = nullptr, *const out = Zeros<unsigned>(32);
    cudaMalloc(&words, 32 * sizeof(unsigned));
    write_most<<<1, 32>>>(reinterpret_cast<unsigned char*>(words));
    use_words<<<1, 32>>>(words, is("words") ? ~0u : 0xffffffu, out);
  }
  if (is("variable")) {
    const std::vector<unsigned> numbers(32, 5);
    unsigned *const memory = Zeros<unsigned>(32), *const out = Zeros<unsigned>(1);
    cudaMemcpy(memory, numbers.data(), 128, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(pointer_in_module, &memory, sizeof(memory));
    through_module_variable<<<1, 32>>>(out);
    unsigned sum = 0;
    cudaMemcpy(&sum, out, sizeof(sum), cudaMemcpyDeviceToHost);
    std::printf("sum %u\n", sum);
  }
  if (is("barriers")) two_barriers<<<1, 64>>>(Zeros<unsigned>(64));
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
