// Histograms: counts in shared memory, privatised per warp and merged with global atomics; weights
// with float and double atomics (whole numbers, so the order does not matter); 64-bit extremes.
#include <algorithm>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 256;
constexpr int kBins = 200;

__global__ void count_shared(const unsigned char* input, int count, unsigned* bins) {
  __shared__ unsigned own[kThreads / 32][kBins];
  for (int i = threadIdx.x; i < kThreads / 32 * kBins; i += kThreads) (&own[0][0])[i] = 0;
  __syncthreads();
  const uchar4* quads = reinterpret_cast<const uchar4*>(input);
  unsigned* mine = own[threadIdx.x / 32];
  const int stride = gridDim.x * kThreads;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count / 4; i += stride) {
    const uchar4 quad = quads[i];
    atomicAdd(&mine[quad.x % kBins], 1u);
    atomicAdd(&mine[quad.y % kBins], 1u);
    atomicAdd(&mine[quad.z % kBins], 1u);
    atomicAdd(&mine[quad.w % kBins], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
    unsigned sum = 0;
    for (int w = 0; w < kThreads / 32; ++w) sum += own[w][bin];
    if (sum != 0) atomicAdd(&bins[bin], sum);
  }
}

template <class T>
__global__ void weigh(const unsigned char* input, const int* weights, int count, T* bins,
                      unsigned long long* largest, int* smallest) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const int bin = input[i] % kBins;
  atomicAdd(&bins[bin], static_cast<T>(weights[i]));
  atomicMax(&largest[bin], static_cast<unsigned long long>(weights[i] + 1000) << 32 | i);
  atomicMin(&smallest[bin], weights[i]);
}

int main() {
  constexpr int kCount = 120000;
  Random random(3);
  std::vector<unsigned char> input(kCount);
  std::vector<int> weights(kCount);
  for (auto& value : input) value = static_cast<unsigned char>(random.Below(16) * random.Below(16));
  for (int& weight : weights) weight = random.Whole(50);
  std::vector<unsigned> counts(kBins);
  std::vector<float> sums(kBins);
  std::vector<double> sums_double(kBins);
  std::vector<unsigned long long> largest(kBins);
  std::vector<int> smallest(kBins);
  for (int i = 0; i < kCount; ++i) {
    const int bin = input[i] % kBins;
    ++counts[bin];
    sums[bin] += static_cast<float>(weights[i]);
    sums_double[bin] += weights[i];
    largest[bin] = std::max(largest[bin], static_cast<unsigned long long>(weights[i] + 1000) << 32 |
                                              static_cast<unsigned>(i));
    smallest[bin] = std::min(smallest[bin], weights[i]);
  }
  DeviceArray<unsigned char> values(input);
  DeviceArray<int> device_weights(weights), device_smallest(kBins), device_smallest2(kBins);
  DeviceArray<unsigned> bins(kBins);
  DeviceArray<float> float_bins(kBins);
  DeviceArray<double> double_bins(kBins);
  DeviceArray<unsigned long long> device_largest(kBins);
  count_shared<<<20, kThreads>>>(values.data(), kCount, bins.data());
  const int blocks = (kCount + kThreads - 1) / kThreads;
  weigh<<<blocks, kThreads>>>(values.data(), device_weights.data(), kCount, float_bins.data(),
                              device_largest.data(), device_smallest.data());
  weigh<<<blocks, kThreads>>>(values.data(), device_weights.data(), kCount, double_bins.data(),
                              device_largest.data(), device_smallest2.data());
  Exact("counts", bins.Download(), counts);
  Exact("float weights", float_bins.Download(), sums);
  Exact("double weights", double_bins.Download(), sums_double);
  Exact("largest", device_largest.Download(), largest);
  Exact("smallest", device_smallest.Download(), smallest);
  return Finish();
}
