// cub's collective algorithms of a block and of a warp, called from one kernel.
#include <algorithm>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 128, kPerThread = 4, kTile = kThreads * kPerThread, kBlocks = 6;

__global__ void __launch_bounds__(kThreads)
    collectives(const int* input, int* sums, int* scanned, int* sorted, int* striped, int* warps) {
  using Reduce = cub::BlockReduce<int, kThreads>;
  using Scan = cub::BlockScan<int, kThreads>;
  using Sort = cub::BlockRadixSort<int, kThreads, kPerThread>;
  using Exchange = cub::BlockExchange<int, kThreads, kPerThread>;
  using WarpReduce = cub::WarpReduce<int>;
  using WarpScan = cub::WarpScan<int, 8>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
    typename Sort::TempStorage sort;
    typename Exchange::TempStorage exchange;
    typename WarpReduce::TempStorage warp_reduce[kThreads / 32];
    typename WarpScan::TempStorage warp_scan[kThreads / 8];
  } storage;
  const int first = blockIdx.x * kTile + threadIdx.x * kPerThread;
  int items[kPerThread], results[kPerThread];
  for (int k = 0; k < kPerThread; ++k) items[k] = input[first + k];

  const int sum = Reduce(storage.reduce).Sum(items);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  __syncthreads();
  Scan(storage.scan).InclusiveSum(items, results);
  for (int k = 0; k < kPerThread; ++k) scanned[first + k] = results[k];
  __syncthreads();
  for (int k = 0; k < kPerThread; ++k) results[k] = items[k];
  Sort(storage.sort).Sort(results);
  for (int k = 0; k < kPerThread; ++k) sorted[first + k] = results[k];
  __syncthreads();
  Exchange(storage.exchange).BlockedToStriped(items, results);
  for (int k = 0; k < kPerThread; ++k) striped[first + k] = results[k];
  __syncthreads();
  const int largest =
      WarpReduce(storage.warp_reduce[threadIdx.x / 32]).Reduce(items[0], cuda::maximum<>{});
  __syncthreads();
  int prefix;
  WarpScan(storage.warp_scan[threadIdx.x / 8]).ExclusiveSum(items[0], prefix);
  warps[blockIdx.x * kThreads + threadIdx.x] = prefix + (threadIdx.x % 32 == 0 ? largest : 0);
}

int main() {
  Random random(43);
  std::vector<int> input(kBlocks * kTile);
  for (int& value : input) value = random.Whole(100000);
  std::vector<int> sums(kBlocks), scanned(input.size()), sorted = input, striped(input.size()),
                                                         warps(kBlocks * kThreads);
  for (int b = 0; b < kBlocks; ++b) {
    for (int i = 0; i < kTile; ++i) scanned[b * kTile + i] = sums[b] += input[b * kTile + i];
    std::sort(&sorted[b * kTile], &sorted[b * kTile] + kTile);
    for (int t = 0; t < kThreads; ++t) {
      for (int k = 0; k < kPerThread; ++k)
        striped[b * kTile + t * kPerThread + k] = input[b * kTile + k * kThreads + t];
      int& value = warps[b * kThreads + t];
      for (int other = t / 8 * 8; other < t; ++other)
        value += input[b * kTile + other * kPerThread];
      if (t % 32 != 0) continue;
      int largest = input[b * kTile + t * kPerThread];
      for (int other = t; other < t + 32; ++other)
        largest = std::max(largest, input[b * kTile + other * kPerThread]);
      value += largest;
    }
  }
  DeviceArray<int> in(input), device_sums(kBlocks), device_scanned(input.size()),
      device_sorted(input.size()), device_striped(input.size()), device_warps(warps.size());
  collectives<<<kBlocks, kThreads>>>(in.data(), device_sums.data(), device_scanned.data(),
                                     device_sorted.data(), device_striped.data(),
                                     device_warps.data());
  Exact("BlockReduce", device_sums.Download(), sums);
  Exact("BlockScan", device_scanned.Download(), scanned);
  Exact("BlockRadixSort", device_sorted.Download(), sorted);
  Exact("BlockExchange", device_striped.Download(), striped);
  Exact("WarpReduce and WarpScan", device_warps.Download(), warps);
  return Finish();
}
