// Row-wise softmax, one block per row: maximum, sum of exponentials, quotient. Right for any shape.
//
//   scripts/ops-debug check-memory --kernel examples/softmax_kernel.cu --input-shape 64x1000
//
// reports nothing.

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
  return value;
}

__device__ float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

// ops-debug: block=256 grid=rows
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const float* input, float* output, int rows, int cols) {
  __shared__ float partial_max[kWarps];
  __shared__ float partial_sum[kWarps];
  if (blockIdx.x >= rows) return;
  const float* in = input + static_cast<size_t>(blockIdx.x) * cols;
  float* out = output + static_cast<size_t>(blockIdx.x) * cols;
  const int warp = threadIdx.x / 32;

  float largest = -INFINITY;
  for (int col = threadIdx.x; col < cols; col += kThreads) largest = fmaxf(largest, in[col]);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) partial_max[warp] = largest;
  __syncthreads();
  for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, partial_max[i]);

  float sum = 0.0f;
  for (int col = threadIdx.x; col < cols; col += kThreads) sum += expf(in[col] - largest);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) partial_sum[warp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < kWarps; ++i) sum += partial_sum[i];

  for (int col = threadIdx.x; col < cols; col += kThreads) out[col] = expf(in[col] - largest) / sum;
}
