// Layer norm of rows of half numbers, one block per row: mean, variance, scale and shift.
//
// This kernel is faulty, on purpose, and layer_norm_fixed.cu is its right twin: squares are added up
// in half, which ends at 65504. Where their sum is larger the variance is infinite, its inverse root
// 0, and the row becomes beta. To see which instruction leaves the range, with its operands, and what
// each conversion loses:
//
//   scripts/ops-debug check-precision --kernel examples/layer_norm.cu --trace-fp16-to-fp32
//
// prints one finding, fp-overflow, and a table of the conversions.
#include <cuda_fp16.h>

constexpr int kWarp = 32;

__device__ __half warp_sum(__half value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    value = __hadd(value, __shfl_xor_sync(~0u, value, lane));
  }
  return value;
}

// ops-debug: grid=rows block=32 input=shape:8x32:iota gamma=shape:32 beta=shape:32 rows=8 cols=32 output=shape:8x32
__global__ void layer_norm(const __half* input, const __half* gamma, const __half* beta,
                           __half* output, int rows, int cols, float eps) {
  if (blockIdx.x >= rows) return;
  const __half* in = input + static_cast<size_t>(blockIdx.x) * cols;
  __half* out = output + static_cast<size_t>(blockIdx.x) * cols;
  __half sum = __float2half(0.0f), squares = __float2half(0.0f);
  for (int col = threadIdx.x; col < cols; col += kWarp) {
    sum = __hadd(sum, in[col]);
    squares = __hfma(in[col], in[col], squares);
  }
  const float mean = __half2float(warp_sum(sum)) / cols;
  const float variance = __half2float(warp_sum(squares)) / cols - mean * mean;
  const float scale = rsqrtf(variance + eps);
  for (int col = threadIdx.x; col < cols; col += kWarp) {
    const float normal = (__half2float(in[col]) - mean) * scale;
    out[col] = __float2half(normal * __half2float(gamma[col]) + __half2float(beta[col]));
  }
}
