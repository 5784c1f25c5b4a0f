// A histogram of byte values, four neighbouring values to a bin. Each thread counts in bytes of its
// own in shared memory, so no two threads update one address; the block then adds its counts to the
// result.
//
// This kernel is faulty, on purpose: with values above a limit it leaves its shared array. Its
// right twin is histogram_kernel_fixed.cu.
//
//   scripts/ops-debug check-memory --kernel examples/histogram_kernel.cu --input-shape 65536
//
// prints oob-shared for the read and the write of one line.

constexpr int kThreads = 128;
constexpr int kBins = 32;
constexpr int kValuesPerThread = 128;  // below 256: a byte counts them

// ops-debug: block=128 grid=ceil(n/16384) histogram=shape:64
__global__ void __launch_bounds__(kThreads)
    histogram_kernel(const unsigned char* values, unsigned int* histogram, int n) {
  __shared__ unsigned char counts[kBins * kThreads];
  for (int bin = 0; bin < kBins; ++bin) counts[bin * kThreads + threadIdx.x] = 0;

  const int first = blockIdx.x * kThreads * kValuesPerThread + threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < kValuesPerThread; ++i) {
    const int index = first + i * kThreads;
    if (index < n) {
      const int bin = (values[index] >> 2) & 63;
      counts[bin * kThreads + threadIdx.x]++;
    }
  }
  __syncthreads();

  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
    unsigned int sum = 0;
    for (int thread = 0; thread < kThreads; ++thread) sum += counts[bin * kThreads + thread];
    atomicAdd(&histogram[bin], sum);
  }
}
