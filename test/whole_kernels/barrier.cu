// cuda::barrier: arrive and wait apart, as split points of a time step; warps that hand tiles to
// each other over two barriers per stage; threads that drop out; a completion by transaction bytes
// of a bulk copy; and a barrier that counts more than once per thread.
#include <cooperative_groups.h>

#include <cuda/barrier>

#include "digest.h"

using namespace whole_kernels;
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

#pragma nv_diag_suppress static_var_with_dynamic_init

constexpr int kThreads = 96, kSteps = 9, kTile = 64;

// Each step reads the neighbours of the step before.
__global__ void split_steps(unsigned* values) {
  __shared__ unsigned line[2][kThreads];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, kThreads);
  __syncthreads();
  const unsigned t = threadIdx.x;
  line[0][t] = values[t];
  unsigned own = 0;
  for (int step = 0; step < kSteps; ++step) {
    Barrier::arrival_token token = barrier.arrive();
    own = own * 5 + t;  // work that needs no one
    barrier.wait(cuda::std::move(token));
    const unsigned* from = line[step % 2];
    line[(step + 1) % 2][t] =
        from[(t + 1) % kThreads] * 3 + from[(t + kThreads - 1) % kThreads] + own;
  }
  barrier.arrive_and_wait();
  values[t] = line[kSteps % 2][t];
}

// One warp fills, two warps use: a full and an empty barrier per buffer.
__global__ void hand_over(const unsigned* input, unsigned* output) {
  __shared__ unsigned buffer[2][kTile];
  __shared__ Barrier full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      init(&full[s], kThreads);
      init(&empty[s], kThreads);
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int step = 0; step < kSteps; ++step) {
      empty[step % 2].arrive_and_wait();
      for (int i = threadIdx.x; i < kTile; i += 32)
        buffer[step % 2][i] = input[step * kTile + i] + 1;
      (void)full[step % 2].arrive();
    }
    return;
  }
  unsigned sum = 0;
  for (int s = 0; s < 2; ++s) (void)empty[s].arrive();
  for (int step = 0; step < kSteps; ++step) {
    full[step % 2].arrive_and_wait();
    sum = sum * 7 + buffer[step % 2][kTile - 1 - (threadIdx.x - 32)];
    // The last two are not filled again.
    if (step + 2 < kSteps) (void)empty[step % 2].arrive();
  }
  output[threadIdx.x - 32] = sum;
}

// In every step the threads of the highest numbers leave for good.
__global__ void drop_out(unsigned* steps_of_thread) {
  __shared__ Barrier barrier;
  __shared__ unsigned present[kSteps];
  if (threadIdx.x == 0) init(&barrier, kThreads);
  if (threadIdx.x < kSteps) present[threadIdx.x] = 0;
  __syncthreads();
  for (int step = 0; step < kSteps; ++step) {
    atomicAdd(&present[step], 1u);
    if (threadIdx.x >= kThreads - 10 * (step + 1)) {
      barrier.arrive_and_drop();
      return;
    }
    barrier.arrive_and_wait();
    if (threadIdx.x == 0) steps_of_thread[step] = present[step];
  }
}

__global__ void bulk_copy(const uint4* input, unsigned* output) {
  __shared__ __align__(128) uint4 tile[kThreads];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init(&barrier, kThreads);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  unsigned sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
      cuda::device::experimental::cp_async_bulk_global_to_shared(tile, input + step * kThreads,
                                                                 sizeof(tile), barrier);
      token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof(tile));
    } else {
      token = barrier.arrive();
    }
    barrier.wait(cuda::std::move(token));
    const uint4 piece = tile[(threadIdx.x * 29 + 1) % kThreads];
    sum = sum * 11 + (piece.x ^ piece.y ^ piece.z ^ piece.w);
    __syncthreads();
  }
  output[threadIdx.x] = sum;
}

__global__ void count_twice(unsigned* output) {
  __shared__ Barrier barrier;
  __shared__ unsigned order;
  if (threadIdx.x == 0) {
    init(&barrier, kThreads + 32);
    order = 0;
  }
  __syncthreads();
  // The first warp counts for two each.
  Barrier::arrival_token token = barrier.arrive(threadIdx.x < 32 ? 2 : 1);
  barrier.wait(cuda::std::move(token));
  atomicAdd(&order, threadIdx.x);
  (void)barrier.arrive(threadIdx.x < 32 ? 2 : 1);
  if (threadIdx.x == 0) {
    barrier.wait_parity(true);
    output[0] = order;
  }
}

int main() {
  Random random(61);
  std::vector<unsigned> input(kSteps * kThreads * 4);
  for (unsigned& value : input) value = random.Next();
  DeviceArray<unsigned> in(input), line(kThreads), handed(kTile), present(kSteps), copied(kThreads),
      order(1);
  {
    std::vector<unsigned> now(input.begin(), input.begin() + kThreads), next(kThreads);
    std::vector<unsigned> own(kThreads);
    REQUIRE_CUDA(cudaMemcpy(line.data(), in.data(), kThreads * 4, cudaMemcpyDeviceToDevice));
    for (int step = 0; step < kSteps; ++step) {
      for (unsigned t = 0; t < kThreads; ++t) {
        own[t] = own[t] * 5 + t;
        next[t] = now[(t + 1) % kThreads] * 3 + now[(t + kThreads - 1) % kThreads] + own[t];
      }
      now.swap(next);
    }
    split_steps<<<1, kThreads>>>(line.data());
    Exact("arrive and wait", line.Download(), now);
  }
  {
    std::vector<unsigned> expected(kTile);
    for (int step = 0; step < kSteps; ++step)
      for (int t = 0; t < kTile; ++t)
        expected[t] = expected[t] * 7 + input[step * kTile + kTile - 1 - t] + 1;
    hand_over<<<1, kThreads>>>(in.data(), handed.data());
    Exact("producer and consumers", handed.Download(), expected);
  }
  {
    std::vector<unsigned> expected(kSteps);
    for (int step = 0; step < kSteps; ++step) expected[step] = kThreads - 10 * step;
    drop_out<<<1, kThreads>>>(present.data());
    Exact("arrive and drop", present.Download(), expected);
  }
  {
    std::vector<unsigned> expected(kThreads);
    for (int step = 0; step < kSteps; ++step) {
      for (int t = 0; t < kThreads; ++t) {
        const unsigned* piece = &input[(step * kThreads + (t * 29 + 1) % kThreads) * 4];
        expected[t] = expected[t] * 11 + (piece[0] ^ piece[1] ^ piece[2] ^ piece[3]);
      }
    }
    bulk_copy<<<1, kThreads>>>(reinterpret_cast<const uint4*>(in.data()), copied.data());
    Exact("bulk copy", copied.Download(), expected);
  }
  count_twice<<<1, kThreads>>>(order.data());
  Exact("counts", order.Download(), {kThreads * (kThreads - 1) / 2u});
  return Finish();
}
