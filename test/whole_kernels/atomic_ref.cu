// libcu++'s atomics: atomic_ref in every operation and width, a ticket lock and a spin lock between
// blocks, message passing with release and acquire, a lock-free stack, and a device-wide latch.
#include <algorithm>
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/tuple>

#include "digest.h"

using namespace whole_kernels;

constexpr int kBlocks = 12, kThreads = 64;

template <class T>
using Device = cuda::atomic_ref<T, cuda::thread_scope_device>;

template <class T>
__global__ void operations(T* words) {
  const T t = static_cast<T>(blockIdx.x * kThreads + threadIdx.x + 1);
  Device<T>(words[0]).fetch_add(t, cuda::memory_order_relaxed);
  Device<T>(words[1]).fetch_sub(t, cuda::memory_order_acq_rel);
  Device<T>(words[2]).fetch_and(~(static_cast<T>(1) << t % 29), cuda::memory_order_relaxed);
  Device<T>(words[3]).fetch_or(static_cast<T>(1) << t % 23, cuda::memory_order_release);
  Device<T>(words[4]).fetch_xor(t * t, cuda::memory_order_acquire);
  Device<T>(words[5]).fetch_max(t % 301, cuda::memory_order_seq_cst);
  Device<T>(words[6]).fetch_min(500 - t % 301, cuda::memory_order_relaxed);
  // A product, which has no instruction of its own.
  Device<T> product(words[7]);
  T seen = product.load(cuda::memory_order_relaxed);
  while (!product.compare_exchange_weak(seen, seen * (2 * t + 1), cuda::memory_order_acq_rel)) {
  }
}

struct Shared {
  unsigned ticket, serving, spin, guarded, guarded_by_spin;
};

// One thread per warp takes a lock; a critical section of plain loads and stores.
__global__ void locks(Shared* shared) {
  if (threadIdx.x % 32 != 0) return;
  for (int round = 0; round < 5; ++round) {
    const unsigned mine = Device<unsigned>(shared->ticket).fetch_add(1, cuda::memory_order_relaxed);
    while (Device<unsigned>(shared->serving).load(cuda::memory_order_acquire) != mine) {
    }
    shared->guarded = shared->guarded * 3 + 1;
    Device<unsigned>(shared->serving).store(mine + 1, cuda::memory_order_release);

    unsigned free = 0;
    while (!Device<unsigned>(shared->spin)
                .compare_exchange_strong(free, 1, cuda::memory_order_acquire)) {
      free = 0;
      __nanosleep(20);
    }
    shared->guarded_by_spin = shared->guarded_by_spin * 5 + 2;
    Device<unsigned>(shared->spin).store(0, cuda::memory_order_release);
  }
}

// Block b passes what it got from block b - 1 on to block b + 1.
__global__ void relay(unsigned* data, unsigned* flags) {
  __shared__ unsigned received;
  if (threadIdx.x == 0) {
    received = 1;
    if (blockIdx.x > 0) {
      cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(flags[blockIdx.x - 1]);
      flag.wait(0, cuda::memory_order_acquire);
      received = data[blockIdx.x - 1];
    }
    data[blockIdx.x] = received * 7 + blockIdx.x;
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(flags[blockIdx.x]);
    flag.store(1, cuda::memory_order_release);
    flag.notify_all();
  }
}

// Treiber's stack: indices with a count against ABA in one 64-bit word.
__global__ void stack(unsigned long long* head, unsigned* next, unsigned* sums) {
  const unsigned node = blockIdx.x * kThreads + threadIdx.x + 1;
  Device<unsigned long long> top(*head);
  unsigned long long seen = top.load(cuda::memory_order_relaxed), wanted;
  do {
    next[node] = static_cast<unsigned>(seen);
    wanted = ((seen >> 32) + 1) << 32 | node;
  } while (!top.compare_exchange_weak(seen, wanted, cuda::memory_order_acq_rel));
  __syncthreads();
  // Every thread pops one, not always its own.
  do {
    seen = top.load(cuda::memory_order_acquire);
    const unsigned below =
        Device<unsigned>(next[static_cast<unsigned>(seen)]).load(cuda::memory_order_relaxed);
    wanted = ((seen >> 32) + 1) << 32 | below;
  } while (!top.compare_exchange_strong(seen, wanted, cuda::memory_order_acq_rel));
  Device<unsigned>(sums[0]).fetch_add(static_cast<unsigned>(seen));
  Device<unsigned>(sums[1]).fetch_xor(static_cast<unsigned>(seen) * 2654435761u);
}

__global__ void standard(const unsigned* input, unsigned* output) {
  const unsigned value = input[threadIdx.x];
  const cuda::std::array<unsigned, 3> parts = {static_cast<unsigned>(cuda::std::popcount(value)),
                                               static_cast<unsigned>(cuda::std::countl_zero(value)),
                                               cuda::std::rotl(value, 7)};
  const auto [a, b, c] = cuda::std::make_tuple(parts[0], parts[1], parts[2]);
  output[threadIdx.x] = a + b * 100 + c;
}

template <class T>
void TestOperations(const char* name) {
  std::vector<T> words(8), expected(8);
  words[2] = ~static_cast<T>(0);
  words[6] = 1000;
  words[7] = 1;
  expected = words;
  for (T t = 1; t <= kBlocks * kThreads; ++t) {
    expected[0] += t;
    expected[1] -= t;
    expected[2] &= ~(static_cast<T>(1) << t % 29);
    expected[3] |= static_cast<T>(1) << t % 23;
    expected[4] ^= t * t;
    expected[5] = std::max<T>(expected[5], t % 301);
    expected[6] = std::min<T>(expected[6], 500 - t % 301);
    expected[7] *= 2 * t + 1;
  }
  DeviceArray<T> device(words);
  operations<<<kBlocks, kThreads>>>(device.data());
  Exact(name, device.Download(), expected);
}

int main() {
  TestOperations<unsigned>("32 bits");
  TestOperations<unsigned long long>("64 bits");

  DeviceArray<Shared> shared(1);
  locks<<<kBlocks, kThreads>>>(shared.data());
  Shared expected = {};
  for (int i = 0; i < kBlocks * kThreads / 32 * 5; ++i) {
    expected.guarded = expected.guarded * 3 + 1;
    expected.guarded_by_spin = expected.guarded_by_spin * 5 + 2;
    expected.ticket = expected.serving = i + 1;
  }
  Exact("locks", shared.Download(), {expected});

  DeviceArray<unsigned> data(kBlocks), flags(kBlocks);
  relay<<<kBlocks, 32>>>(data.data(), flags.data());
  std::vector<unsigned> passed(kBlocks);
  for (unsigned b = 0; b < kBlocks; ++b) passed[b] = (b == 0 ? 1 : passed[b - 1]) * 7 + b;
  Exact("relay between blocks", data.Download(), passed);

  DeviceArray<unsigned long long> head(1);
  DeviceArray<unsigned> next(kBlocks * kThreads + 1), sums(2);
  stack<<<kBlocks, kThreads>>>(head.data(), next.data(), sums.data());
  std::vector<unsigned> popped(2);
  for (unsigned node = 1; node <= kBlocks * kThreads; ++node) {
    popped[0] += node;
    popped[1] ^= node * 2654435761u;
  }
  Exact("stack", sums.Download(), popped);

  Random random(67);
  std::vector<unsigned> input(kThreads), bits(kThreads);
  for (size_t i = 0; i < input.size(); ++i) {
    input[i] = random.Next() >> random.Below(32);
    bits[i] = __builtin_popcount(input[i]) + (input[i] == 0 ? 32 : __builtin_clz(input[i])) * 100 +
              (input[i] << 7 | input[i] >> 25);
  }
  DeviceArray<unsigned> in(input), out(kThreads);
  standard<<<1, kThreads>>>(in.data(), out.data());
  Exact("cuda::std", out.Download(), bits);
  return Finish();
}
