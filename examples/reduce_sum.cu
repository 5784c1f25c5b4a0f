// Sums of the rows of a matrix. A block takes row after row: its warps sum up their parts, and the
// first warp adds these.
//
// This kernel is faulty, on purpose, and reduce_sum_fixed.cu is its right twin: a fast warp goes on
// to its next row and overwrites its partial sum while the first warp is still reading it. The sums
// are nearly always right. To see what is wrong and where:
//
//   scripts/ops-debug check-sync --kernel examples/reduce_sum.cu --block-size 256
//
// prints one finding, race-shared, with both accesses and where a __syncthreads() is missing.

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
  }
}
