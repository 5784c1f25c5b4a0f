// Row-wise softmax: online over a warp's row (maximum and sum in one pass), one block per long row,
// and base-2 with ex2.approx as libraries do it.
#include <algorithm>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 256;

struct Partial {
  float maximum, sum;
};

__device__ Partial Merge(Partial a, Partial b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  if (maximum == -INFINITY) return {maximum, 0.0f};
  return {maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

__device__ Partial MergeWarp(Partial p) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Partial other = {__shfl_xor_sync(0xffffffffu, p.maximum, offset),
                           __shfl_xor_sync(0xffffffffu, p.sum, offset)};
    p = Merge(p, other);
  }
  return p;
}

__global__ void softmax_warp(const float* input, float* output, int rows, int columns) {
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  Partial p = {-INFINITY, 0.0f};
  for (int c = lane; c < columns; c += 32) p = Merge(p, {input[row * columns + c], 1.0f});
  p = MergeWarp(p);
  for (int c = lane; c < columns; c += 32)
    output[row * columns + c] = expf(input[row * columns + c] - p.maximum) / p.sum;
}

__device__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void softmax_block(const float* input, float* output, int columns) {
  __shared__ float of_warp[kThreads / 32];
  constexpr float kLog2e = 1.4426950408889634f;
  const float4* row = reinterpret_cast<const float4*>(input + blockIdx.x * columns);
  float4* out = reinterpret_cast<float4*>(output + blockIdx.x * columns);
  float maximum = -INFINITY;
  for (int c = threadIdx.x; c < columns / 4; c += kThreads) {
    const float4 x = row[c];
    maximum = fmaxf(maximum, fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)));
  }
  for (int offset = 16; offset > 0; offset /= 2)
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, offset));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = maximum;
  __syncthreads();
  for (float other : of_warp) maximum = fmaxf(maximum, other);
  __syncthreads();
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns / 4; c += kThreads) {
    float4 x = row[c];
    x.x = Exp2((x.x - maximum) * kLog2e);
    x.y = Exp2((x.y - maximum) * kLog2e);
    x.z = Exp2((x.z - maximum) * kLog2e);
    x.w = Exp2((x.w - maximum) * kLog2e);
    sum += (x.x + x.y) + (x.z + x.w);
    out[c] = x;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (float other : of_warp) sum += other;
  const float scale = __frcp_rn(sum);
  for (int c = threadIdx.x; c < columns / 4; c += kThreads) {
    float4 x = out[c];
    x.x *= scale;
    x.y *= scale;
    x.z *= scale;
    x.w *= scale;
    out[c] = x;
  }
}

std::vector<double> OnHost(const std::vector<float>& input, int rows, int columns) {
  std::vector<double> output(input.size());
  for (int r = 0; r < rows; ++r) {
    double maximum = -INFINITY, sum = 0;
    for (int c = 0; c < columns; ++c)
      maximum = std::max(maximum, static_cast<double>(input[r * columns + c]));
    for (int c = 0; c < columns; ++c) sum += std::exp(input[r * columns + c] - maximum);
    for (int c = 0; c < columns; ++c)
      output[r * columns + c] = std::exp(input[r * columns + c] - maximum) / sum;
  }
  return output;
}

int main() {
  Random random(11);
  const auto rows_of = [&random](int rows, int columns) {
    std::vector<float> values(rows * columns);
    for (float& value : values) value = random.Unit() * 8.0f;
    return values;
  };
  // ex2.approx is off by 2 ulp at most (PTX ISA, ex2) and its argument, up to 23, is rounded:
  // 23 * 2^-24; a sum of 2,048 terms in a tree adds some ulp.
  constexpr double kTolerance = 4e-6;
  const std::vector<float> narrow = rows_of(61, 257), wide = rows_of(16, 2048);
  DeviceArray<float> in(narrow), out(narrow.size()), wide_in(wide), wide_out(wide.size());
  softmax_warp<<<(61 + 7) / 8, kThreads>>>(in.data(), out.data(), 61, 257);
  Approximate("softmax by warps", out.Download(), OnHost(narrow, 61, 257), kTolerance);
  softmax_block<<<16, kThreads>>>(wide_in.data(), wide_out.data(), 2048);
  Approximate("softmax by blocks", wide_out.Download(), OnHost(wide, 16, 2048), kTolerance);
  return Finish();
}
