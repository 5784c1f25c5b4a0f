// C = A * B in single precision with shared-memory tiles: a block computes a 64x64 tile of C, a
// thread 4x4 of its elements, in steps of 16 along K.
//
// This kernel is faulty, on purpose, and matmul_kernel_fixed.cu is its right twin. The results look
// right for most inputs, and no launch fails on most machines. To see what is wrong and where:
//
//   scripts/ops-debug check-memory --kernel examples/matmul_kernel.cu --input-shape 1024x1024
//   --check-boundary
//
// prints one finding, oob-global: a 4-byte read past the end of B, with its line, first thread and
// count.

constexpr int kTile = 64;   // rows and columns of C per block
constexpr int kDepth = 16;  // elements of K per step
constexpr int kThreads = 256;
constexpr int kPerThread = 4;  // rows and columns of C per thread

// ops-debug: block=256 grid=ceil(N/64),ceil(M/64)
__global__ void __launch_bounds__(kThreads)
    matmul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float tile_a[kDepth][kTile];  // transposed, so that a thread's four rows are adjacent
  __shared__ float tile_b[kDepth][kTile];

  const int first_row = blockIdx.y * kTile;
  const int first_col = blockIdx.x * kTile;
  const int thread_row = threadIdx.x / 16 * kPerThread;
  const int thread_col = threadIdx.x % 16 * kPerThread;

  float sum[kPerThread][kPerThread] = {};

  const int steps = K / kDepth + 1;
  for (int step = 0; step < steps; ++step) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int row = first_row + i / kDepth;
      const int k = step * kDepth + i % kDepth;
      tile_a[i % kDepth][i / kDepth] = row < M && k < K ? A[row * K + k] : 0.0f;
    }
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int k = step * kDepth + i / kTile;
      const int col = first_col + i % kTile;
      tile_b[i / kTile][i % kTile] = col < N ? B[k * N + col] : 0.0f;
    }
    __syncthreads();

    for (int k = 0; k < kDepth; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&tile_a[k][thread_row]);
      const float4 b = *reinterpret_cast<const float4*>(&tile_b[k][thread_col]);
      const float rows[kPerThread] = {a.x, a.y, a.z, a.w};
      const float cols[kPerThread] = {b.x, b.y, b.z, b.w};
      for (int r = 0; r < kPerThread; ++r) {
        for (int c = 0; c < kPerThread; ++c) sum[r][c] += rows[r] * cols[c];
      }
    }
    __syncthreads();
  }

  for (int r = 0; r < kPerThread; ++r) {
    for (int c = 0; c < kPerThread; ++c) {
      const int row = first_row + thread_row + r;
      const int col = first_col + thread_col + c;
      if (row < M && col < N) C[row * N + col] = sum[r][c];
    }
  }
}
