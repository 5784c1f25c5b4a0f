// Inclusive scan in one pass (decoupled look-back, Merrill and Garland 2016): each block publishes
// the sum of its tile, then walks back over the tiles before it until one has published the sum of
// everything up to it. A tile waits for others that may not have started their turn, so this also
// shows that blocks make progress beside each other.
#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 128;
constexpr int kPerThread = 8;
constexpr int kTile = kThreads * kPerThread;

// State and value of a tile travel in one 64-bit word, so neither is seen without the other.
enum : unsigned { kNothing = 0, kTileSum = 1, kSumUpToHere = 2 };

__device__ unsigned long long Pack(unsigned state, unsigned value) {
  return static_cast<unsigned long long>(state) << 32 | value;
}

__device__ unsigned ScanBlock(unsigned value, unsigned* total) {
  __shared__ unsigned of_warp[kThreads / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += other;
  }
  if (lane == 31) of_warp[warp] = value;
  __syncthreads();
  unsigned before = 0, all = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += of_warp[w];
    all += of_warp[w];
  }
  *total = all;
  return before + value;
}

// The first warp looks back over 32 tiles at a time.
__device__ unsigned LookBack(volatile unsigned long long* tiles, int tile) {
  const int lane = threadIdx.x;
  unsigned sum = 0;
  for (int window = tile - 1;; window -= 32) {
    const int other = window - lane;
    unsigned long long word;
    do {
      word = other >= 0 ? tiles[other] : Pack(kSumUpToHere, 0);
    } while (__any_sync(0xffffffffu, word >> 32 == kNothing));
    const unsigned complete = __ballot_sync(0xffffffffu, word >> 32 == kSumUpToHere);
    const int nearest = complete != 0 ? __ffs(complete) - 1 : 31;
    sum += __reduce_add_sync(0xffffffffu, lane <= nearest ? static_cast<unsigned>(word) : 0u);
    if (complete != 0) return sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    scan(const unsigned* input, unsigned* output, int count, volatile unsigned long long* tiles,
         unsigned* next_tile) {
  // Tiles are taken in the order of arrival: the ones before this have all started.
  __shared__ unsigned shared_tile, shared_before;
  if (threadIdx.x == 0) shared_tile = atomicAdd(next_tile, 1u);
  __syncthreads();
  const int tile = shared_tile;

  unsigned values[kPerThread];
  unsigned sum = 0;
  const int first = tile * kTile + threadIdx.x * kPerThread;
  for (int k = 0; k < kPerThread; ++k) {
    values[k] = first + k < count ? input[first + k] : 0;
    sum += values[k];
  }
  unsigned total;
  unsigned before = ScanBlock(sum, &total) - sum;
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      __threadfence();
      tiles[tile] = Pack(tile == 0 ? kSumUpToHere : kTileSum, total);
    }
    __syncwarp();
    const unsigned earlier = tile == 0 ? 0 : LookBack(tiles, tile);
    if (threadIdx.x == 0) {
      __threadfence();
      tiles[tile] = Pack(kSumUpToHere, earlier + total);
      shared_before = earlier;
    }
  }
  __syncthreads();
  before += shared_before;
  for (int k = 0; k < kPerThread; ++k) {
    before += values[k];
    if (first + k < count) output[first + k] = before;
  }
}

int main() {
  for (const int count : {1, 1000, kTile, 5 * kTile + 1, 250001}) {
    Random random(count);
    std::vector<unsigned> input(count), expected(count);
    unsigned sum = 0;
    for (int i = 0; i < count; ++i) {
      input[i] = random.Next();
      expected[i] = sum += input[i];
    }
    const int blocks = (count + kTile - 1) / kTile;
    DeviceArray<unsigned> values(input), output(count), next_tile(1);
    DeviceArray<unsigned long long> tiles(blocks);
    scan<<<blocks, kThreads>>>(values.data(), output.data(), count, tiles.data(), next_tile.data());
    Exact("scan of " + std::to_string(count), output.Download(), expected);
  }
  return Finish();
}
