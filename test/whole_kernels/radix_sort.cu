// Stable radix sort of (key, value) pairs, least significant digit first, four bits a pass: counts
// per block and digit, a scan over the counts in digit-major order, and a scatter whose ranks come
// from ballots.
#include <algorithm>
#include <numeric>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 256;
constexpr int kRounds = 4;  // elements per thread
constexpr int kTile = kThreads * kRounds;
constexpr int kDigits = 16;
constexpr int kWarps = kThreads / 32;

__global__ void count_digits(const unsigned* keys, int count, int shift, unsigned* counts) {
  __shared__ unsigned of_block[kDigits];
  if (threadIdx.x < kDigits) of_block[threadIdx.x] = 0;
  __syncthreads();
  for (int round = 0; round < kRounds; ++round) {
    const int i = blockIdx.x * kTile + round * kThreads + threadIdx.x;
    if (i < count) atomicAdd(&of_block[keys[i] >> shift & 15], 1u);
  }
  __syncthreads();
  if (threadIdx.x < kDigits) counts[threadIdx.x * gridDim.x + blockIdx.x] = of_block[threadIdx.x];
}

// Exclusive scan by one block.
__global__ void scan_counts(unsigned* counts, int count) {
  __shared__ unsigned of_warp[32];
  __shared__ unsigned carry;
  if (threadIdx.x == 0) carry = 0;
  for (int first = 0; first < count; first += blockDim.x) {
    const int i = first + threadIdx.x;
    const unsigned own = i < count ? counts[i] : 0;
    unsigned value = own;
    for (int offset = 1; offset < 32; offset *= 2) {
      const unsigned other = __shfl_up_sync(0xffffffffu, value, offset);
      if (threadIdx.x % 32 >= offset) value += other;
    }
    if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    unsigned before = carry;
    for (int w = 0; w < threadIdx.x / 32; ++w) before += of_warp[w];
    if (i < count) counts[i] = before + value - own;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) carry = before + value;
    __syncthreads();
  }
}

__global__ void scatter(const unsigned* keys, const unsigned* values, int count, int shift,
                        const unsigned* offsets, unsigned* keys_out, unsigned* values_out) {
  __shared__ unsigned of_warp[kWarps][kDigits];
  __shared__ unsigned next[kDigits];  // where the next element of this block goes
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < kDigits) next[threadIdx.x] = offsets[threadIdx.x * gridDim.x + blockIdx.x];
  for (int round = 0; round < kRounds; ++round) {
    const int i = blockIdx.x * kTile + round * kThreads + threadIdx.x;
    const bool inside = i < count;
    const unsigned key = inside ? keys[i] : 0;
    const unsigned digit = key >> shift & 15;
    // Lanes with the same digit, from four ballots.
    unsigned peers = __ballot_sync(0xffffffffu, inside);
    for (int bit = 0; bit < 4; ++bit) {
      const unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1);
      peers &= (digit >> bit & 1) != 0 ? set : ~set;
    }
    const unsigned rank = __popc(peers & ((1u << lane) - 1));
    if (lane < kDigits) of_warp[warp][lane] = 0;
    __syncwarp();
    if (inside && rank == 0) of_warp[warp][digit] = __popc(peers);
    __syncthreads();
    if (inside) {
      unsigned place = next[digit] + rank;
      for (int w = 0; w < warp; ++w) place += of_warp[w][digit];
      keys_out[place] = key;
      values_out[place] = values[i];
    }
    __syncthreads();
    if (threadIdx.x < kDigits) {
      for (int w = 0; w < kWarps; ++w) next[threadIdx.x] += of_warp[w][threadIdx.x];
    }
    __syncthreads();
  }
}

int main() {
  for (const int count : {1, 777, 50001}) {
    Random random(count + 1);
    std::vector<unsigned> keys(count), values(count);
    for (unsigned& key : keys) key = random.Below(4) == 0 ? random.Below(16) : random.Next();
    std::iota(values.begin(), values.end(), 0u);
    const int blocks = (count + kTile - 1) / kTile;
    DeviceArray<unsigned> keys_a(keys), values_a(values), keys_b(count), values_b(count);
    DeviceArray<unsigned> counts(kDigits * blocks);
    unsigned *from = keys_a.data(), *to = keys_b.data();
    unsigned *values_from = values_a.data(), *values_to = values_b.data();
    for (int shift = 0; shift < 32; shift += 4) {
      count_digits<<<blocks, kThreads>>>(from, count, shift, counts.data());
      scan_counts<<<1, 1024>>>(counts.data(), kDigits * blocks);
      scatter<<<blocks, kThreads>>>(from, values_from, count, shift, counts.data(), to, values_to);
      std::swap(from, to);
      std::swap(values_from, values_to);
    }
    std::vector<unsigned> order = values;
    std::stable_sort(order.begin(), order.end(),
                     [&keys](unsigned a, unsigned b) { return keys[a] < keys[b]; });
    std::vector<unsigned> sorted(count);
    for (int i = 0; i < count; ++i) sorted[i] = keys[order[i]];
    Exact("sorted keys of " + std::to_string(count), keys_a.Download(), sorted);
    Exact("order of " + std::to_string(count), values_a.Download(), order);
  }
  return Finish();
}
