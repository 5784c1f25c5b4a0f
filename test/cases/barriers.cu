// Barriers that not all threads reach, as operator libraries had them.
#include "cases.h"

using namespace cases;

// CASE K22 barrier-divergence: a block barrier inside a branch of some warps
template <bool kWrong>
__global__ void combine_by_role(const float* in, float* out) {
  __shared__ float meta[8];
  __shared__ float stage[256];
  const int warp = threadIdx.x / 32;
  stage[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (warp % 4 == 0) {
    if (threadIdx.x % 32 == 0) meta[warp] = stage[threadIdx.x] + stage[threadIdx.x + 32];
    if constexpr (kWrong) __syncthreads();  //! K22
    KEEP;
  }
  __syncthreads();  //! K22
  out[threadIdx.x] = stage[255 - threadIdx.x] + meta[warp / 4 * 4];  //? K22
}  //? K22
static void K22(bool wrong) {
  float *in = Uploaded(Ramp(256)), *out = Unwritten<float>(256);
  if (wrong) combine_by_role<true><<<1, 256>>>(in, out);
  else combine_by_role<false><<<1, 256>>>(in, out);
}

// CASE K23 barrier-divergence: the threads behind the end return before the barrier
template <bool kWrong>
__global__ void quantise_groups(const float* in, float* out, int total) {
  __shared__ float largest[8];
  const int group = threadIdx.y, i = (blockIdx.x * blockDim.y + group) * 32 + threadIdx.x;
  const bool active = i < total;
  if (kWrong && !active) return;  //? K23
  float value = active ? fabsf(in[i]) : 0;
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (threadIdx.x == 0) largest[group] = value;
  __syncthreads();  //! K23
  float scale = 0;
  for (int g = 0; g < 8; g++) {
    if ((blockIdx.x * blockDim.y + g) * 32 < total) scale = fmaxf(scale, largest[g]);
  }
  __syncthreads();  //? K23
  if (active) out[i] = in[i] / scale;
}
static void K23(bool wrong) {
  const int total = 8 * 32 + 3 * 32;  // the last block: three of eight groups
  float *in = Uploaded(Ramp(total)), *out = Unwritten<float>(total);
  if (wrong) quantise_groups<true><<<2, dim3(32, 8)>>>(in, out, total);
  else quantise_groups<false><<<2, dim3(32, 8)>>>(in, out, total);
}

// CASE K23_split_warp barrier-divergence: the same, and the end lies in the middle of a warp
template <bool kWrong>
__global__ void shift_left(const float* in, float* out, int total) {
  __shared__ float stage[128];
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (kWrong && i >= total) return;  //? K23_split_warp
  stage[threadIdx.x] = i < total ? in[i] : 0;
  __syncthreads();  //! K23_split_warp
  if (i < total) out[i] = stage[threadIdx.x / 2];
}
static void K23_split_warp(bool wrong) {
  float *in = Uploaded(Ramp(200)), *out = Unwritten<float>(200);
  if (wrong) shift_left<true><<<2, 128>>>(in, out, 200);
  else shift_left<false><<<2, 128>>>(in, out, 200);
}

// CASE K17_mask barrier-divergence|missing-warp-sync: a warp barrier whose mask names lanes that are elsewhere
template <bool kWrong>
__global__ void rotate_half(float* data) {
  __shared__ float s[32];
  s[threadIdx.x] = data[threadIdx.x];
  __syncwarp();
  if (threadIdx.x < 16) {
    const float value = s[(threadIdx.x + 1) % 16];
    if constexpr (kWrong) {
      __syncwarp();  //! K17_mask
    } else {
      __syncwarp(0x0000ffffu);
    }
    s[threadIdx.x] = value;
  }
  KEEP;
  data[threadIdx.x] = s[threadIdx.x];
}  //? K17_mask
static void K17_mask(bool wrong) {
  float* data = Uploaded(Ramp(32));
  if (wrong) rotate_half<true><<<1, 32>>>(data);
  else rotate_half<false><<<1, 32>>>(data);
}

// CASE T12_count barrier-divergence|deadlock: a named barrier for 48 threads
template <bool kWrong>
__global__ void consumers_only(float* data) {
  __shared__ float s[64];
  s[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  if (kWrong ? threadIdx.x < 48 : threadIdx.x < 64) {
    asm volatile("barrier.sync 1, %0;" ::"r"(kWrong ? 48 : 64) : "memory");  //! T12_count
  }
  data[threadIdx.x] = s[63 - threadIdx.x];
}  //? T12_count
static void T12_count(bool wrong) {
  float* data = Uploaded(Ramp(64));
  if (wrong) consumers_only<true><<<1, 64>>>(data);
  else consumers_only<false><<<1, 64>>>(data);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K22", K22}, {"K23", K23}, {"K23_split_warp", K23_split_warp}, {"K17_mask", K17_mask}, {"T12_count", T12_count}};
  return Main(all, argc, argv);
}
