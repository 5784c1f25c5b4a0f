// Right code that simple checkers flag: it has to stay silent. A case called `counter pair` is its near twin that is wrong.
#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "cases.h"

using namespace cases;

__device__ unsigned LoadAcquire(const unsigned* place) {
  unsigned value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}
__device__ void StoreRelease(unsigned* place, unsigned value) {
  asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}
__device__ unsigned SharedAddress(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

__global__ void copy_words(const unsigned* in, unsigned* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x]; }

// TRAP T01_packed: decoupled look-back with value and flag in one word
__global__ void look_back_packed(const unsigned* in, unsigned long long* tiles, unsigned* out) {
  __shared__ unsigned before;
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, in[blockIdx.x * 64 + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    volatile unsigned long long* const v = tiles;
    v[blockIdx.x] = (1ull << 32) | sum;
    unsigned total = 0;
    for (int tile = int(blockIdx.x) - 1; tile >= 0; tile--) {
      unsigned long long word;
      do {
        word = v[tile];
      } while (word >> 32 == 0);
      total += unsigned(word);
      if (word >> 32 == 2) break;
    }
    v[blockIdx.x] = (2ull << 32) | (total + sum);
    before = total;
  }
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = before + in[blockIdx.x * 64 + threadIdx.x];
}
static void T01_packed(bool) {
  unsigned *in = Uploaded(std::vector<unsigned>(8 * 64, 3)), *out = Unwritten<unsigned>(8 * 64);
  look_back_packed<<<8, 64>>>(in, Zeros<unsigned long long>(8), out);
}

// TRAP T01_separate: decoupled look-back with the values beside the flags; they are unwritten where no flag is set
__global__ void look_back_separate(const unsigned* in, unsigned* flags, unsigned* sums, unsigned* prefixes, unsigned* out) {
  if (threadIdx.x != 0) return;
  unsigned sum = 0;
  for (int i = 0; i < 16; i++) sum += in[blockIdx.x * 16 + i];
  sums[blockIdx.x] = sum;
  StoreRelease(&flags[blockIdx.x], 1);
  unsigned total = 0;
  for (int tile = int(blockIdx.x) - 1; tile >= 0; tile--) {
    unsigned flag;
    do {
      flag = LoadAcquire(&flags[tile]);
    } while (flag == 0);
    if (flag == 2) {
      total += prefixes[tile];
      break;
    }
    total += sums[tile];
  }
  prefixes[blockIdx.x] = total + sum;
  StoreRelease(&flags[blockIdx.x], 2);
  out[blockIdx.x] = total;
}
static void T01_separate(bool) {
  unsigned *in = Uploaded(std::vector<unsigned>(8 * 16, 3)), *out = Unwritten<unsigned>(8);
  look_back_separate<<<8, 32>>>(in, Zeros<unsigned>(8), Unwritten<unsigned>(8), Unwritten<unsigned>(8), out);
}

// TRAP T03: a bulk copy to the end of dynamic shared memory
__global__ void bulk_to_dynamic(const unsigned* in, unsigned* out, int words) {
  extern __shared__ __align__(128) unsigned dynamic[];
  __shared__ __align__(8) uint64_t barrier;
  const int start = words - 256;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.proxy.async;" ::"r"(SharedAddress(&barrier)) : "memory");
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], 1024; }" ::"r"(SharedAddress(&barrier)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(SharedAddress(dynamic + start)),
                 "l"(in), "r"(SharedAddress(&barrier))
                 : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (done == 0) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(SharedAddress(&barrier))
                 : "memory");
  }
  for (int i = threadIdx.x; i < 256; i += blockDim.x) out[i] = dynamic[start + i];
}
static void T03(bool) {
  unsigned *in = Uploaded(std::vector<unsigned>(256, 7)), *out = Unwritten<unsigned>(256);
  bulk_to_dynamic<<<1, 64, 8064>>>(in, out, 8064 / 4);
}

// TRAP T04: one tensor over two adjacent mappings, a bulk store across the seam
__global__ void store_across(unsigned* out) {
  __shared__ __align__(128) unsigned tile[64];
  tile[threadIdx.x] = threadIdx.x;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(out),
                 "r"(SharedAddress(tile))
                 : "memory");
  }
}
template <class Function>
static Function Driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
  return reinterpret_cast<Function>(function);
}
static void T04(bool) {
  cudaFree(nullptr);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t part = 0;
  Driver<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(&part, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  CUdeviceptr base = 0;
  Driver<decltype(&cuMemAddressReserve)>("cuMemAddressReserve")(&base, 2 * part, 0, 0, 0);
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (int i = 0; i < 2; i++) {
    CUmemGenericAllocationHandle handle;
    Driver<decltype(&cuMemCreate)>("cuMemCreate")(&handle, part, &properties, 0);
    Driver<decltype(&cuMemMap)>("cuMemMap")(base + i * part, part, 0, handle, 0);
    Driver<decltype(&cuMemSetAccess)>("cuMemSetAccess")(base + i * part, part, &access, 1);
  }
  unsigned* const seam = reinterpret_cast<unsigned*>(base + part - 128);
  store_across<<<1, 64>>>(seam);
  copy_words<<<1, 64>>>(seam, Unwritten<unsigned>(64));
}

// TRAP T05: managed and mapped memory that the host wrote
static void T05(bool) {
  unsigned *managed, *pinned, *pinned_there, *out = Unwritten<unsigned>(256);
  cudaMallocManaged(&managed, 256 * 4);
  std::fill(managed, managed + 256, 3u);
  copy_words<<<1, 256>>>(managed, out);
  cudaHostAlloc(&pinned, 256 * 4, cudaHostAllocMapped);
  std::fill(pinned, pinned + 256, 4u);
  cudaHostGetDevicePointer(&pinned_there, pinned, 0);
  copy_words<<<1, 256>>>(pinned_there, out);
  cudaDeviceSynchronize();
  std::printf("host sees %u\n", managed[0] + pinned[0]);
}

// TRAP T06: memory in stream order, from the default pool and from one of its own, used again after it was given back
static void T06(bool) {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemPool_t pool;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPoolCreate(&pool, &properties);
  unsigned* out = Unwritten<unsigned>(256);
  for (int i = 0; i < 3; i++) {
    unsigned *a, *b;
    cudaMallocAsync(&a, 1000, stream);
    cudaMallocFromPoolAsync(&b, 1024, pool, stream);
    cudaMemsetAsync(a, i, 1000, stream);
    cudaMemcpyAsync(b, a, 1000, cudaMemcpyDeviceToDevice, stream);
    copy_words<<<1, 250, 0, stream>>>(b, out);
    cudaFreeAsync(a, stream);
    cudaFreeAsync(b, stream);
  }
  cudaStreamSynchronize(stream);
}

// TRAP T07: a queue between two warps in shared memory: volatile flags, fences, shuffles, nanosleep
__global__ void warp_queue(const unsigned* in, unsigned* out, int items) {
  __shared__ unsigned slots[4][32];
  __shared__ volatile unsigned head, tail;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) head = tail = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < items; i++) {
      if (lane == 0) {
        while (head + 4 <= i) __nanosleep(20);
        __threadfence_block();
      }
      __syncwarp();
      slots[i % 4][lane] = in[i * 32 + lane];
      __syncwarp();
      if (lane == 0) {
        __threadfence_block();
        tail = i + 1;
      }
    }
  } else {
    for (int i = 0; i < items; i++) {
      unsigned there = 0;
      while (there <= unsigned(i)) {
        if (lane == 0) there = tail;
        there = __shfl_sync(0xffffffffu, there, 0);
        if (there <= unsigned(i)) __nanosleep(20);
      }
      if (lane == 0) __threadfence_block();
      __syncwarp();
      out[i * 32 + lane] = slots[i % 4][31 - lane];
      __syncwarp();
      if (lane == 0) {
        __threadfence_block();
        head = i + 1;
      }
    }
  }
}
static void T07(bool) {
  unsigned *in = Uploaded(std::vector<unsigned>(10 * 32, 5)), *out = Unwritten<unsigned>(10 * 32);
  warp_queue<<<1, 64>>>(in, out, 10);
}

// TRAP T08_T09: words that end behind the data, inside the padding of the allocation, whose tail bits are never written and masked
__global__ void count_valid(const unsigned* mask, int bits, unsigned* count) {
  const int word = threadIdx.x;
  if (word * 32 >= bits) return;
  unsigned value = mask[word];
  if (word * 32 + 32 > bits) value &= (1u << (bits - word * 32)) - 1;
  atomicAdd(count, __popc(value));
}
__global__ void set_bytes(unsigned char* mask, int bytes) {
  if (threadIdx.x < bytes) mask[threadIdx.x] = 0x5a;
}
static void T08_T09(bool) {
  const int bits = 77, padded_bytes = 64;  // 10 bytes hold the bits; the contract says 64
  unsigned char* mask = Unwritten<unsigned char>(padded_bytes);
  set_bytes<<<1, 32>>>(mask, (bits + 7) / 8);
  count_valid<<<1, 32>>>(reinterpret_cast<unsigned*>(mask), bits, Zeros<unsigned>(1));
}

// TRAP T10: everybody writes the same value, or what was there (a note is welcome)
__global__ void same_values(unsigned* flag, unsigned* list) {
  flag[0] = 1;
  list[threadIdx.x] = list[threadIdx.x];
}
static void T10(bool) { same_values<<<4, 64>>>(Zeros<unsigned>(1), Zeros<unsigned>(64)); }

// TRAP T11: a semaphore in serial order between blocks, with acquire and release and no fence
__global__ void serial_split_k(const unsigned* in, unsigned* semaphore, unsigned* sum) {
  if (threadIdx.x == 0) {
    while (LoadAcquire(semaphore) != blockIdx.x) {
    }
  }
  __syncthreads();
  const unsigned mine = in[blockIdx.x * 64 + threadIdx.x];
  sum[threadIdx.x] = blockIdx.x == 0 ? mine : sum[threadIdx.x] + mine;
  __syncthreads();
  if (threadIdx.x == 0) StoreRelease(semaphore, blockIdx.x + 1);
}
static void T11(bool) {
  unsigned* in = Uploaded(std::vector<unsigned>(6 * 64, 2));
  serial_split_k<<<6, 64>>>(in, Zeros<unsigned>(1), Unwritten<unsigned>(64));
}

// TRAP T12: named barriers, half of the block arrives, the other half waits; and a barrier of the consumers only
__global__ void producers_and_consumers(const unsigned* in, unsigned* out) {
  __shared__ unsigned stage[128], sums[128];
  const int i = threadIdx.x % 128;
  if (threadIdx.x < 128) {
    stage[i] = in[i];
    asm volatile("bar.arrive 1, 256;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 256;" ::: "memory");
    sums[i] = stage[127 - i];
    asm volatile("bar.sync 2, 128;" ::: "memory");
    out[i] = sums[(i + 1) % 128];
  }
}
static void T12(bool) {
  unsigned* in = Uploaded(std::vector<unsigned>(128, 2));
  producers_and_consumers<<<1, 256>>>(in, Unwritten<unsigned>(128));
}

// TRAP T13: an all-reduce of two ranks that spin on each other's flags, release and acquire in system scope
__device__ void SignalPeer(unsigned* flag, unsigned value) { asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory"); }
__device__ void AwaitPeer(const unsigned* flag, unsigned value) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  } while (seen != value);
}
// CASE T13_counter_pair race-global|stream-race,atomics-misuse: the same with volatile flags and no fences
template <bool kWrong>
__global__ void all_reduce(const unsigned* mine, unsigned* my_buffer, const unsigned* peer_buffer, unsigned* my_flag, unsigned* peer_flag,
                           unsigned* out) {
  my_buffer[threadIdx.x] = mine[threadIdx.x];  //! T13_counter_pair
  __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (kWrong) {
      *(volatile unsigned*)peer_flag = 1;
      while (*(volatile unsigned*)my_flag != 1) {
      }
    } else {
      SignalPeer(peer_flag, 1);
      AwaitPeer(my_flag, 1);
    }
  }
  __syncthreads();
  out[threadIdx.x] = my_buffer[threadIdx.x] + peer_buffer[threadIdx.x];  //! T13_counter_pair
}
static void AllReduce(bool wrong) {
  unsigned *buffers[2], *flags[2], *outs[2], *inputs[2];
  cudaStream_t streams[2];
  for (int rank = 0; rank < 2; rank++) {
    buffers[rank] = Unwritten<unsigned>(64);
    flags[rank] = Zeros<unsigned>(1);
    outs[rank] = Unwritten<unsigned>(64);
    inputs[rank] = Uploaded(std::vector<unsigned>(64, rank + 1));
    cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking);
  }
  cudaDeviceSynchronize();
  for (int rank = 0; rank < 2; rank++) {
    const auto kernel = wrong ? all_reduce<true> : all_reduce<false>;
    kernel<<<1, 64, 0, streams[rank]>>>(inputs[rank], buffers[rank], buffers[1 - rank], flags[rank], flags[1 - rank], outs[rank]);  //? T13_counter_pair
  }
}
static void T13(bool) { AllReduce(false); }
static void T13_counter_pair(bool wrong) { AllReduce(wrong); }

// CASE T14_counter_pair race-shared|barrier-divergence: a block writes into another one of its cluster that may not have started
// TRAP T14: distributed shared memory with barriers of the cluster
template <bool kWrong>
__global__ void __cluster_dims__(2, 1, 1) exchange(const unsigned* in, unsigned* out) {  //? T14_counter_pair
  __shared__ unsigned inbox[64];
  unsigned rank;
  uint64_t there;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(inbox), "r"(rank ^ 1));
  if constexpr (!kWrong) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  reinterpret_cast<unsigned*>(there)[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];  //! T14_counter_pair
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  out[blockIdx.x * 64 + threadIdx.x] = inbox[63 - threadIdx.x];  //? T14_counter_pair
}
static void T14(bool) { exchange<false><<<4, 64>>>(Uploaded(std::vector<unsigned>(4 * 64, 2)), Unwritten<unsigned>(4 * 64)); }
static void T14_counter_pair(bool wrong) {
  const auto kernel = wrong ? exchange<true> : exchange<false>;
  kernel<<<4, 64>>>(Uploaded(std::vector<unsigned>(4 * 64, 2)), Unwritten<unsigned>(4 * 64));
}

// TRAP T15: float atomics whose order a semaphore fixes, and integer atomics
__global__ void ordered_atomics(const unsigned* in, unsigned* semaphore, float* sum, unsigned* count) {
  if (threadIdx.x == 0) {
    while (LoadAcquire(semaphore) != blockIdx.x) {
    }
    atomicAdd(sum, 0.25f * in[blockIdx.x]);
    StoreRelease(semaphore, blockIdx.x + 1);
  }
  atomicAdd(count, in[blockIdx.x]);
}
static void T15(bool) { ordered_atomics<<<5, 64>>>(Uploaded(std::vector<unsigned>(5, 2)), Zeros<unsigned>(1), Zeros<float>(1), Zeros<unsigned>(1)); }

// TRAP T16: the order of a sum depends on the size of the batch
__global__ void split_sum(const float* in, float* out, int splits) {
  __shared__ float partial[64];
  float sum = 0;
  for (int i = threadIdx.x % splits; i < 256; i += splits) sum += in[blockIdx.x * 256 + i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < splits; i++) total += partial[i];
    out[blockIdx.x] = total;
  }
}
static void T16(bool) {
  float *in = Uploaded(Ramp(8 * 256)), *out = Unwritten<float>(8);
  split_sum<<<8, 64>>>(in, out, 16);
  split_sum<<<1, 64>>>(in, out, 64);
}

// TRAP T17: lanes behind the end are switched off, their addresses lie far outside
__global__ void masked_rows(const float* in, float* out, int columns, int stride) {
  float value = 0;
  const float* const address = in + blockIdx.x * columns + threadIdx.x * stride;
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, %2; @p ld.global.f32 %0, [%3]; }" : "+f"(value) : "r"(threadIdx.x * stride), "r"(columns), "l"(address) : "memory");
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
static void T17(bool) { masked_rows<<<2, 64>>>(Uploaded(Ramp(2 * 100)), Unwritten<float>(2 * 64), 100, 5); }

// TRAP T18: output that only a bulk store wrote, read by a kernel and by the host
static void T18(bool) {
  unsigned* out = Unwritten<unsigned>(64);
  store_across<<<1, 64>>>(out);
  copy_words<<<1, 64>>>(out, Unwritten<unsigned>(64));
  std::vector<unsigned> host(64);
  cudaMemcpy(host.data(), out, 256, cudaMemcpyDeviceToHost);
  std::printf("last %u\n", host[63]);
}

// TRAP all_threads_fence: each thread fences before the barrier behind which one of them draws the ticket
__global__ void ticket_by_fences_of_all(const float* in, float* staging, unsigned* counter, float* out) {
  __shared__ bool is_last;
  staging[blockIdx.x * 64 + threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += staging[i * 64 + 63 - threadIdx.x];
  out[threadIdx.x] = sum;
}
static void all_threads_fence(bool) {
  ticket_by_fences_of_all<<<6, 64>>>(Uploaded(Ramp(6 * 64)), Unwritten<float>(6 * 64), Zeros<unsigned>(1), Unwritten<float>(64));
}

// TRAP own_async_copies: each thread waits for its own copies and reads nothing else: no barrier needed
__global__ void own_copies(const float* in, float* out) {
  __shared__ float stage[2][64];
  float sum = 0;
  for (int i = 0; i < 6; i++) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;" ::"r"(SharedAddress(&stage[i % 2][threadIdx.x])),
                 "l"(in + i * 64 + threadIdx.x)
                 : "memory");
    sum += stage[i % 2][threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
static void own_async_copies(bool) { own_copies<<<1, 64>>>(Uploaded(Ramp(6 * 64)), Unwritten<float>(64)); }

int main(int argc, char** argv) {
  const Case all[] = {{"T01_packed", T01_packed}, {"T01_separate", T01_separate}, {"T03", T03}, {"T04", T04}, {"T05", T05}, {"T06", T06}, {"T07", T07},
                      {"T08_T09", T08_T09}, {"T10", T10}, {"T11", T11}, {"T12", T12}, {"T13", T13}, {"T13_counter_pair", T13_counter_pair}, {"T14", T14},
                      {"T14_counter_pair", T14_counter_pair}, {"T15", T15}, {"T16", T16}, {"T17", T17}, {"T18", T18}, {"all_threads_fence", all_threads_fence},
                      {"own_async_copies", own_async_copies}};
  return Main(all, argc, argv);
}
