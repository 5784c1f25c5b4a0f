// Layer norm of rows of half numbers, one block per row: the right twin of layer_norm.cu. Sums are
// kept in float, and the variance is that of the differences from the mean.
//
//   scripts/ops-debug check-precision --kernel examples/layer_norm_fixed.cu --trace-fp16-to-fp32
//
// has no findings.
#include <cuda_fp16.h>

constexpr int kWarp = 32;

__device__ float warp_sum(float value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

// ops-debug: grid=rows block=32 input=shape:8x32:iota gamma=shape:32 beta=shape:32 rows=8 cols=32 output=shape:8x32
__global__ void layer_norm(const __half* input, const __half* gamma, const __half* beta,
                           __half* output, int rows, int cols, float eps) {
  if (blockIdx.x >= rows) return;
  const __half* in = input + static_cast<size_t>(blockIdx.x) * cols;
  __half* out = output + static_cast<size_t>(blockIdx.x) * cols;
  float sum = 0.0f, squares = 0.0f;
  for (int col = threadIdx.x; col < cols; col += kWarp) sum += __half2float(in[col]);
  const float mean = warp_sum(sum) / cols;
  for (int col = threadIdx.x; col < cols; col += kWarp) {
    const float difference = __half2float(in[col]) - mean;
    squares += difference * difference;
  }
  const float scale = rsqrtf(warp_sum(squares) / cols + eps);
  for (int col = threadIdx.x; col < cols; col += kWarp) {
    const float normal = (__half2float(in[col]) - mean) * scale;
    out[col] = __float2half(normal * __half2float(gamma[col]) + __half2float(beta[col]));
  }
}
