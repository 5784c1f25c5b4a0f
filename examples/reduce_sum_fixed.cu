// Sums of the rows of a matrix. A block takes row after row: its warps sum up their parts, and the
// first warp adds these. The right twin of reduce_sum.cu: a barrier at the end of the loop keeps the
// partial sums until they have been read.
//
//   scripts/ops-debug check-sync --kernel examples/reduce_sum_fixed.cu --block-size 256
//
// reports nothing.

constexpr int kMostWarps = 32;

__device__ float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

// ops-debug: block=256 grid=4 input=shape:16x2000 sums=shape:16
__global__ void reduce_sum(const float* input, float* sums, int rows, int cols) {
  __shared__ float partial[kMostWarps];
  const int warp = threadIdx.x / 32;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int col = threadIdx.x; col < cols; col += blockDim.x) sum += input[row * cols + col];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
      sum = warp_sum(sum);
      if (threadIdx.x == 0) sums[row] = sum;
    }
    __syncthreads();
  }
}
