// Thread block clusters: a histogram whose bins lie in the shared memory of all blocks of a cluster
// (atomics into another block's shared memory), a reduction over distributed shared memory, a ring
// shift with split arrive and wait, and the cluster's ids. Cluster sizes come from the kernel's
// attribute and from the launch.
#include <cooperative_groups.h>

#include "digest.h"

using namespace whole_kernels;
namespace cg = cooperative_groups;

constexpr int kThreads = 128;

__global__ void histogram(const unsigned* input, int count, unsigned* bins, int bin_count) {
  extern __shared__ unsigned own[];
  const cg::cluster_group cluster = cg::this_cluster();
  const int per_block = bin_count / cluster.num_blocks();
  for (int i = threadIdx.x; i < per_block; i += kThreads) own[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    const int bin = input[i] % bin_count;
    unsigned* const there = cluster.map_shared_rank(own, bin / per_block);
    atomicAdd(&there[bin % per_block], 1u);
  }
  cluster.sync();  // no block leaves while others write into it
  for (int i = threadIdx.x; i < per_block; i += kThreads)
    atomicAdd(&bins[cluster.block_rank() * per_block + i], own[i]);
}

__global__ void __cluster_dims__(2, 2, 1) ids(unsigned* output) {
  const cg::cluster_group cluster = cg::this_cluster();
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  cluster.sync();
  // Every thread adds its rank to every block of the cluster.
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
    atomicAdd(cluster.map_shared_rank(&sum, rank), cluster.thread_rank());
  cluster.sync();
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) {
    unsigned id, count;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    asm("mov.u32 %0, %%nclusterid.y;" : "=r"(count));
    output[4 * block] = cluster.block_rank();
    output[4 * block + 1] = cluster.block_index().x * 10 + cluster.block_index().y;
    output[4 * block + 2] = sum;
    output[4 * block + 3] = id * 100 + count * 10 + cluster.dim_blocks().x;
  }
}

__global__ void ring(const int* input, int* output, int rounds) {
  __shared__ int cell[2][kThreads];
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned right = (cluster.block_rank() + 1) % cluster.num_blocks();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  cell[0][threadIdx.x] = input[i];
  cluster.sync();
  for (int round = 0; round < rounds; ++round) {
    const int value = cell[round % 2][threadIdx.x];
    int* const there = cluster.map_shared_rank(&cell[(round + 1) % 2][0], right);
    there[(threadIdx.x + 1) % kThreads] = value * 3 + round;
    cluster.barrier_arrive();
    cluster.barrier_wait();
  }
  output[i] = cell[rounds % 2][threadIdx.x];
  cluster.sync();
}

__global__ void sum_of_cluster(const float* input, float* output) {
  __shared__ float of_block[4];  // per warp
  __shared__ float total;
  const cg::cluster_group cluster = cg::this_cluster();
  const cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  float value = input[blockIdx.x * kThreads + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) value += warp.shfl_xor(value, offset);
  if (warp.thread_rank() == 0) of_block[warp.meta_group_rank()] = value;
  __syncthreads();
  if (threadIdx.x == 0) total = (of_block[0] + of_block[1]) + (of_block[2] + of_block[3]);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float sum = 0.0f;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
      sum += *cluster.map_shared_rank(&total, rank);
    output[blockIdx.x / cluster.num_blocks()] = sum;
  }
  cluster.sync();
}

template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), unsigned blocks, unsigned cluster, unsigned shared_bytes,
            Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  REQUIRE_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

int main() {
  Random random(71);
  {
    constexpr int kCount = 20000, kBins = 512;
    std::vector<unsigned> input(kCount), expected(kBins);
    for (unsigned& value : input) ++expected[(value = random.Next() >> random.Below(24)) % kBins];
    DeviceArray<unsigned> in(input), bins(kBins);
    Launch(histogram, 16, 4, kBins / 4 * 4, in.data(), kCount, bins.data(), kBins);
    Exact("histogram in distributed shared memory", bins.Download(), expected);
  }
  {
    constexpr unsigned kWidth = 4, kHeight = 6, kPerBlock = 32;
    std::vector<unsigned> expected;
    for (unsigned y = 0; y < kHeight; ++y) {
      for (unsigned x = 0; x < kWidth; ++x) {
        const unsigned threads = 4 * kPerBlock;
        expected.insert(expected.end(), {y % 2 * 2 + x % 2, x % 2 * 10 + y % 2,
                                         threads * (threads - 1) / 2, x / 2 * 100 + 3 * 10 + 2});
      }
    }
    DeviceArray<unsigned> out(expected.size());
    ids<<<dim3(kWidth, kHeight), kPerBlock>>>(out.data());
    Exact("ids of a cluster of 2x2", out.Download(), expected);
  }
  {
    constexpr int kBlocks = 16, kCluster = 8, kRounds = 13;
    std::vector<int> now(kBlocks * kThreads), next(now.size());
    for (int& value : now) value = static_cast<int>(random.Below(1000));
    DeviceArray<int> in(now), out(now.size());
    for (int round = 0; round < kRounds; ++round) {
      for (int b = 0; b < kBlocks; ++b) {
        const int right = b / kCluster * kCluster + (b + 1) % kCluster;
        for (int t = 0; t < kThreads; ++t)
          next[right * kThreads + (t + 1) % kThreads] = now[b * kThreads + t] * 3 + round;
      }
      now.swap(next);
    }
    Launch(ring, kBlocks, kCluster, 0, in.data(), out.data(), kRounds);
    Exact("ring of eight blocks", out.Download(), now);
  }
  {
    constexpr int kBlocks = 12, kCluster = 3;
    std::vector<float> input(kBlocks * kThreads), expected(kBlocks / kCluster);
    for (float& value : input) value = random.Unit();
    for (int b = 0; b < kBlocks; ++b) {
      float warps[4];
      for (int w = 0; w < 4; ++w) {
        std::vector<float> lanes(&input[b * kThreads + 32 * w], &input[b * kThreads + 32 * w] + 32);
        for (int offset = 16; offset > 0; offset /= 2)
          for (int i = 0; i < offset; ++i) lanes[i] += lanes[i + offset];
        warps[w] = lanes[0];
      }
      expected[b / kCluster] += (warps[0] + warps[1]) + (warps[2] + warps[3]);
    }
    DeviceArray<float> in(input), out(expected.size());
    Launch(sum_of_cluster, kBlocks, kCluster, 0, in.data(), out.data());
    Exact("sums of clusters of three", out.Download(), expected);
  }
  return Finish();
}
