// Races in shared memory that operator libraries had.
#include "cases.h"

using namespace cases;

__device__ float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// CASE K13 race-shared,missing-warp-sync: the next row's partial sums overwrite those that slow warps still read
template <bool kWrong>
__global__ void row_means(const float* in, float* out, int rows, int columns) {
  __shared__ float partial[4];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += in[row * columns + i];
    sum = WarpSum(sum);
    if (threadIdx.x % 32 == 0) {
      partial[threadIdx.x / 32] = sum;  //! K13
    }
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < 4; warp++) {
      total += partial[warp];  //! K13
    }
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[row * columns + i] = total / columns;
    if constexpr (!kWrong) __syncthreads();
  }
}
static void K13(bool wrong) {
  float *in = Uploaded(Ramp(6 * 256)), *out = Unwritten<float>(6 * 256);
  if (wrong) row_means<true><<<2, 128>>>(in, out, 6, 256);
  else row_means<false><<<2, 128>>>(in, out, 6, 256);
}

// CASE K13_two_passes race-shared,missing-warp-sync: mean and variance go through one buffer
template <bool kWrong>
__global__ void mean_and_variance(const float* in, float* out) {
  __shared__ float partial[4];
  const float value = in[blockIdx.x * 128 + threadIdx.x];
  float sum = WarpSum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float mean = partial[0] +  //! K13_two_passes
               partial[1] +  //! K13_two_passes
               partial[2] +  //! K13_two_passes
               partial[3];   //! K13_two_passes
  mean /= 128;
  sum = WarpSum((value - mean) * (value - mean));
  if constexpr (!kWrong) __syncthreads();
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = sum;  //! K13_two_passes
  }
  __syncthreads();
  const float variance = (partial[0] + partial[1] + partial[2] + partial[3]) / 128;
  out[blockIdx.x * 128 + threadIdx.x] = (value - mean) * rsqrtf(variance + 1e-5f);
}
static void K13_two_passes(bool wrong) {
  float *in = Uploaded(Ramp(3 * 128)), *out = Unwritten<float>(3 * 128);
  if (wrong) mean_and_variance<true><<<3, 128>>>(in, out);
  else mean_and_variance<false><<<3, 128>>>(in, out);
}

// CASE K14 missing-warp-sync: two views of one union; the lanes that rake still read one while others write the other
union RakingStorage {
  float grid[128];
  float of_lane[32];
};
template <bool kWrong>
__global__ void raking_reduce(const float* in, float* out) {
  __shared__ RakingStorage storage;
  storage.grid[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) {
    float sum = 0;
    for (int i = 0; i < 4; i++) {
      sum += storage.grid[threadIdx.x * 4 + i];  //! K14
    }
    if constexpr (!kWrong) __syncwarp();
    KEEP;
    storage.of_lane[threadIdx.x] = sum;  //! K14
    __syncwarp();
    if (threadIdx.x == 0) {
      float total = 0;
      for (int lane = 0; lane < 32; lane++) total += storage.of_lane[lane];
      out[blockIdx.x] = total;
    }
  }
}
static void K14(bool wrong) {
  float *in = Uploaded(Ramp(2 * 128)), *out = Unwritten<float>(2);
  if (wrong) raking_reduce<true><<<2, 128>>>(in, out);
  else raking_reduce<false><<<2, 128>>>(in, out);
}

// CASE K14_first_fix barrier-divergence: a block barrier where only the first warp passes
template <bool kWrong>
__global__ void raking_reduce_fixed(const float* in, float* out) {
  __shared__ RakingStorage storage;
  storage.grid[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += storage.grid[threadIdx.x * 4 + i];
    if constexpr (kWrong) {
      __syncthreads();  //! K14_first_fix
    } else {
      __syncwarp();
    }
    storage.of_lane[threadIdx.x] = sum;
    __syncwarp();
    if (threadIdx.x == 0) {
      float total = 0;
      for (int lane = 0; lane < 32; lane++) total += storage.of_lane[lane];
      out[blockIdx.x] = total;
    }
  }
}  //? K14_first_fix
static void K14_first_fix(bool wrong) {
  float *in = Uploaded(Ramp(2 * 128)), *out = Unwritten<float>(2);
  if (wrong) raking_reduce_fixed<true><<<2, 128>>>(in, out);
  else raking_reduce_fixed<false><<<2, 128>>>(in, out);
}

__device__ void CopyAsync(float* destination, const float* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(unsigned(__cvta_generic_to_shared(destination))), "l"(source)  //? K15
               : "memory");
}

// CASE K15 race-shared: the epilogue writes where copies of a prefetch past the last tile still land
template <bool kWrong>
__global__ void tiles_with_epilogue(const float* in, float* out, int tiles) {
  __shared__ float tile[2][128];
  float sum = 0;
  CopyAsync(&tile[0][threadIdx.x], in + threadIdx.x);
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int k = 0; k < tiles; k++) {
    const int next = k + 1 < tiles ? k + 1 : 0;  // there is always a next copy, needed or not
    CopyAsync(&tile[(k + 1) % 2][threadIdx.x], in + next * 128 + threadIdx.x);  //! K15
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    sum += tile[k % 2][127 - threadIdx.x];
    __syncthreads();
  }
  if constexpr (!kWrong) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
  }
  float* const staging = tile[0];
  staging[(threadIdx.x + 1) % 128] = sum;  //! K15
  __syncthreads();
  out[threadIdx.x] = staging[threadIdx.x];  //? K15
}
static void K15(bool wrong) {
  float *in = Uploaded(Ramp(4 * 128)), *out = Unwritten<float>(128);
  if (wrong) tiles_with_epilogue<true><<<1, 128>>>(in, out, 4);
  else tiles_with_epilogue<false><<<1, 128>>>(in, out, 4);
}

// CASE K17 missing-warp-sync: the last steps of a reduction rely on lanes that keep step
template <bool kWrong>
__global__ void reduce_tail(const float* in, float* out) {
  __shared__ float s[128];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 64) s[threadIdx.x] += s[threadIdx.x + 64];
  __syncthreads();
  if (threadIdx.x < 32) {
    float mine = s[threadIdx.x] + s[threadIdx.x + 32];
    s[threadIdx.x] = mine;  //! K17
    if constexpr (!kWrong) __syncwarp();
#pragma unroll 1
    for (int step = 16; step > 0; step /= 2) {
      const float other = s[(threadIdx.x + step) % 32];  //! K17
      if constexpr (!kWrong) __syncwarp();
      mine += other;
      s[threadIdx.x] = mine;  //! K17
      KEEP;
      if constexpr (!kWrong) __syncwarp();
    }
    if (threadIdx.x == 0) out[0] = mine;
  }
}
static void K17(bool wrong) {
  float *in = Uploaded(Ramp(128)), *out = Unwritten<float>(1);
  if (wrong) reduce_tail<true><<<1, 128>>>(in, out);
  else reduce_tail<false><<<1, 128>>>(in, out);
}

// CASE K17_volatile missing-warp-sync|atomics-misuse: the same through a volatile pointer
template <bool kWrong>
__global__ void reduce_tail_volatile(const float* in, float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) {
    volatile float* const v = s;
    float mine = v[threadIdx.x];
#pragma unroll 1
    for (int step = 32; step > 0; step /= 2) {
      mine += v[threadIdx.x + step];  //! K17_volatile
      if constexpr (!kWrong) __syncwarp();
      v[threadIdx.x] = mine;  //! K17_volatile
      if constexpr (!kWrong) __syncwarp();
    }
    if (threadIdx.x == 0) out[0] = mine;
  }
}
static void K17_volatile(bool wrong) {
  float *in = Uploaded(Ramp(64)), *out = Unwritten<float>(1);
  if (wrong) reduce_tail_volatile<true><<<1, 64>>>(in, out);
  else reduce_tail_volatile<false><<<1, 64>>>(in, out);
}

// CASE K46 missing-warp-sync: a list that lanes fill by ballot and others read, with no more than a shuffle between
template <bool kWrong>
__global__ void compact_per_warp(const int* expert_of, int* count, int* out, int tokens) {
  __shared__ int store[4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int token = blockIdx.x * 128 + threadIdx.x;
  const bool mine = token < tokens && expert_of[token] == 1;
  const unsigned ballot = __ballot_sync(0xffffffffu, mine);
  if (mine) {
    store[warp][__popc(ballot & ((1u << lane) - 1))] = token;  //! K46
  }
  int used = mine ? 1 : 0;
  for (int offset = 16; offset > 0; offset /= 2) used += __shfl_xor_sync(0xffffffffu, used, offset);
  if constexpr (!kWrong) __syncwarp();
  KEEP;
  if (lane < used) {
    out[blockIdx.x * 128 + threadIdx.x] = store[warp][lane] * 2;  //! K46
  }
  if (lane == 0) count[blockIdx.x * 4 + warp] = used;
}
static void K46(bool wrong) {
  std::vector<int> experts(256);
  for (int i = 0; i < 256; i++) experts[i] = i % 3;
  int *in = Uploaded(experts), *count = Unwritten<int>(8), *out = Unwritten<int>(256);
  if (wrong) compact_per_warp<true><<<2, 128>>>(in, count, out, 250);
  else compact_per_warp<false><<<2, 128>>>(in, count, out, 250);
}

// CASE K47 race-shared,missing-warp-sync,barrier-divergence: shared data decides a continue, and may be overwritten before all have decided
template <bool kWrong>
__global__ void masked_tiles(const int* tile_mask, const float* in, float* out, int tiles) {
  __shared__ int mask;
  __shared__ float stage[128];
  float sum = 0;
  for (int tile = 0; tile < tiles; tile++) {
    if (threadIdx.x == 0) {
      mask = tile_mask[tile];  //! K47
    }
    __syncthreads();  //? K47
    const int now = mask;  //! K47
    KEEP;
    if constexpr (!kWrong) __syncthreads();
    if (now == 0) continue;
    stage[threadIdx.x] = in[tile * 128 + threadIdx.x];  //? K47
    __syncthreads();                                    //? K47
    sum += stage[127 - threadIdx.x];                    //? K47
    __syncthreads();                                    //? K47
  }
  out[threadIdx.x] = sum;
}
static void K47(bool wrong) {
  int* mask = Uploaded(std::vector<int>{1, 0, 0, 1, 0, 1});
  float *in = Uploaded(Ramp(6 * 128)), *out = Unwritten<float>(128);
  if (wrong) masked_tiles<true><<<1, 128>>>(mask, in, out, 6);
  else masked_tiles<false><<<1, 128>>>(mask, in, out, 6);
}

// CASE K50 race-shared|atomics-misuse,missing-warp-sync: all threads add to one shared scalar
template <bool kWrong>
__global__ void gate_gradient(const float* in, float* out, int steps) {
  __shared__ float s[1];
  if (threadIdx.x == 0) s[0] = 0;
  __syncthreads();
  for (int i = 0; i < steps; i++) {
    const float value = in[i * 128 + threadIdx.x];
    if constexpr (kWrong) {
      s[0] = s[0] + value;  //! K50
    } else {
      const float sum = WarpSum(value);
      if (threadIdx.x % 32 == 0) atomicAdd(&s[0], sum);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) out[0] = s[0];
}
static void K50(bool wrong) {
  float *in = Uploaded(Ramp(2 * 128)), *out = Unwritten<float>(1);
  if (wrong) gate_gradient<true><<<1, 128>>>(in, out, 2);
  else gate_gradient<false><<<1, 128>>>(in, out, 2);
}

// CASE K01_tree race-shared: threads outside the active half of a tree update shared memory in the same step
template <bool kWrong>
__global__ void tree_sum(const float* in, float* out) {
  __shared__ float s[256];
  s[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x >= 128) s[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int half = 64; half >= 32; half /= 2) {
    if (kWrong ? threadIdx.x < 128 : threadIdx.x < half) {
      s[threadIdx.x] += s[threadIdx.x + half];  //! K01_tree
    }
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    const float sum = WarpSum(s[threadIdx.x]);
    if (threadIdx.x == 0) out[0] = sum;
  }
}
static void K01_tree(bool wrong) {
  float *in = Uploaded(Ramp(256)), *out = Unwritten<float>(1);
  if (wrong) tree_sum<true><<<1, 256>>>(in, out);
  else tree_sum<false><<<1, 256>>>(in, out);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K13", K13}, {"K13_two_passes", K13_two_passes}, {"K14", K14}, {"K14_first_fix", K14_first_fix}, {"K15", K15}, {"K17", K17},
                      {"K17_volatile", K17_volatile}, {"K46", K46}, {"K47", K47}, {"K50", K50}, {"K01_tree", K01_tree}};
  return Main(all, argc, argv);
}
