// cuda::pipeline: three stages of asynchronous copies of a block ahead of the computation, with all
// threads in both roles, and with warps that only produce; and the C primitives of one thread.
#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>

#include <cuda/barrier>
#include <cuda/pipeline>

#include "digest.h"

using namespace whole_kernels;
namespace cg = cooperative_groups;

// The states are initialised by make_pipeline and init, as their manual says.
#pragma nv_diag_suppress static_var_with_dynamic_init

constexpr int kThreads = 128, kStages = 3, kBatches = 11;

__global__ void __launch_bounds__(kThreads) unified(const int* input, int* output) {
  __shared__ __align__(16) int tile[kStages][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const cg::thread_block block = cg::this_thread_block();
  cuda::pipeline pipeline = cuda::make_pipeline(block, &state);
  const int* source = input + blockIdx.x * kBatches * kThreads;
  int sum = 0;
  for (int batch = 0, fetched = 0; batch < kBatches; ++batch) {
    for (; fetched < kBatches && fetched < batch + kStages; ++fetched) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, tile[fetched % kStages], source + fetched * kThreads,
                         cuda::aligned_size_t<16>(sizeof(int) * kThreads), pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    // A neighbour's element, so that the copy has to be visible to all.
    sum = sum * 3 + tile[batch % kStages][(threadIdx.x + 37) % kThreads];
    pipeline.consumer_release();
  }
  output[blockIdx.x * kThreads + threadIdx.x] = sum;
}

// One warp produces, three consume.
__global__ void __launch_bounds__(kThreads) partitioned(const int* input, int* output) {
  constexpr int kConsumers = kThreads - 32;
  __shared__ int tile[kStages][kConsumers];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const cg::thread_block block = cg::this_thread_block();
  const bool is_producer = threadIdx.x < 32;
  cuda::pipeline pipeline = cuda::make_pipeline(
      block, &state, is_producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  const int* source = input + blockIdx.x * kBatches * kConsumers;
  if (is_producer) {
    for (int batch = 0; batch < kBatches; ++batch) {
      pipeline.producer_acquire();
      for (int i = threadIdx.x; i < kConsumers; i += 32) {
        cuda::memcpy_async(&tile[batch % kStages][i], source + batch * kConsumers + i,
                           cuda::aligned_size_t<4>(sizeof(int)), pipeline);
      }
      pipeline.producer_commit();
    }
    return;
  }
  int sum = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    pipeline.consumer_wait();
    sum = sum * 3 + tile[batch % kStages][kConsumers - 1 - (threadIdx.x - 32)];
    pipeline.consumer_release();
  }
  output[blockIdx.x * kConsumers + threadIdx.x - 32] = sum;
}

__global__ void __launch_bounds__(kThreads) primitives(const int4* input, int* output) {
  __shared__ int4 tile[2][kThreads];
  const int4* source = input + blockIdx.x * kBatches * kThreads + threadIdx.x;
  __pipeline_memcpy_async(&tile[0][threadIdx.x], source, 16);
  __pipeline_commit();
  int sum = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    // Of the last pieces only 8 bytes are copied; the rest becomes zero.
    if (batch + 1 < kBatches)
      __pipeline_memcpy_async(&tile[(batch + 1) % 2][threadIdx.x], source + (batch + 1) * kThreads,
                              16, batch + 2 == kBatches ? 8 : 0);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    const int4 piece = tile[batch % 2][threadIdx.x];
    sum = sum * 3 + (piece.x ^ piece.y ^ piece.z ^ piece.w);
  }
  output[blockIdx.x * kThreads + threadIdx.x] = sum;
}

int main() {
  constexpr int kBlocks = 5, kConsumers = kThreads - 32;
  Random random(59);
  std::vector<int> input(kBlocks * kBatches * kThreads * 4);
  for (int& value : input) value = static_cast<int>(random.Next());
  std::vector<int> expected(kBlocks * kThreads), expected_partitioned(kBlocks * kConsumers),
      expected_primitives(kBlocks * kThreads);
  const auto next = [](int sum, int value) {
    return static_cast<int>(static_cast<unsigned>(sum) * 3u + static_cast<unsigned>(value));
  };
  for (int b = 0; b < kBlocks; ++b) {
    for (int batch = 0; batch < kBatches; ++batch) {
      for (int t = 0; t < kThreads; ++t) {
        int& sum = expected[b * kThreads + t];
        sum = next(sum, input[(b * kBatches + batch) * kThreads + (t + 37) % kThreads]);
        int& other = expected_primitives[b * kThreads + t];
        const int* piece = &input[((b * kBatches + batch) * kThreads + t) * 4];
        other =
            next(other, piece[0] ^ piece[1] ^ (batch + 1 == kBatches ? 0 : piece[2] ^ piece[3]));
      }
      for (int t = 0; t < kConsumers; ++t) {
        int& sum = expected_partitioned[b * kConsumers + t];
        sum = next(sum, input[(b * kBatches + batch) * kConsumers + kConsumers - 1 - t]);
      }
    }
  }
  DeviceArray<int> in(input), out(expected.size()), out_partitioned(expected_partitioned.size()),
      out_primitives(expected.size());
  unified<<<kBlocks, kThreads>>>(in.data(), out.data());
  Exact("unified pipeline", out.Download(), expected);
  partitioned<<<kBlocks, kThreads>>>(in.data(), out_partitioned.data());
  Exact("partitioned pipeline", out_partitioned.Download(), expected_partitioned);
  primitives<<<kBlocks, kThreads>>>(reinterpret_cast<const int4*>(in.data()),
                                    out_primitives.data());
  Exact("pipeline primitives", out_primitives.Download(), expected_primitives);
  return Finish();
}
