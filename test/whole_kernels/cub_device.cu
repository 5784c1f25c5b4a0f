// cub's device-wide algorithms: reduce, scan, radix sort, select and histogram.
#include <algorithm>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <numeric>

#include "digest.h"

using namespace whole_kernels;

// cub asks for its workspace in a first call.
template <class Call>
void WithWorkspace(Call call) {
  size_t size_bytes = 0;
  REQUIRE_CUDA(call(nullptr, size_bytes));
  DeviceArray<char> workspace(std::max<size_t>(size_bytes, 1));
  REQUIRE_CUDA(call(workspace.data(), size_bytes));
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

struct IsOdd {
  __host__ __device__ bool operator()(unsigned value) const { return value % 2 == 1; }
};

int main() {
  constexpr int kCount = 30011;
  Random random(41);
  std::vector<unsigned> input(kCount);
  for (unsigned& value : input) value = random.Below(3) == 0 ? random.Below(100) : random.Next();
  DeviceArray<unsigned> values(input);

  {
    DeviceArray<unsigned> sum(1), largest(1);
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceReduce::Sum(space, bytes, values.data(), sum.data(), kCount);
    });
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceReduce::Max(space, bytes, values.data(), largest.data(), kCount);
    });
    Exact("DeviceReduce::Sum", sum.Download(), {std::accumulate(input.begin(), input.end(), 0u)});
    Exact("DeviceReduce::Max", largest.Download(), {*std::max_element(input.begin(), input.end())});
  }
  {
    std::vector<unsigned> expected(kCount);
    std::exclusive_scan(input.begin(), input.end(), expected.begin(), 0u);
    DeviceArray<unsigned> sums(kCount);
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(space, bytes, values.data(), sums.data(), kCount);
    });
    Exact("DeviceScan::ExclusiveSum", sums.Download(), expected);
  }
  {
    std::vector<unsigned> order(kCount);
    std::iota(order.begin(), order.end(), 0u);
    DeviceArray<unsigned> indices(order), keys_out(kCount), indices_out(kCount);
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(space, bytes, values.data(), keys_out.data(),
                                             indices.data(), indices_out.data(), kCount);
    });
    std::stable_sort(order.begin(), order.end(),
                     [&input](unsigned a, unsigned b) { return input[a] < input[b]; });
    std::vector<unsigned> sorted = input;
    std::sort(sorted.begin(), sorted.end());
    Exact("DeviceRadixSort::SortPairs keys", keys_out.Download(), sorted);
    Exact("DeviceRadixSort::SortPairs values", indices_out.Download(), order);
  }
  {
    std::vector<unsigned> expected;
    std::copy_if(input.begin(), input.end(), std::back_inserter(expected), IsOdd());
    DeviceArray<unsigned> selected(kCount), count(1);
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceSelect::If(space, bytes, values.data(), selected.data(), count.data(),
                                   kCount, IsOdd());
    });
    Exact("DeviceSelect::If count", count.Download(), {static_cast<unsigned>(expected.size())});
    expected.resize(kCount);
    Exact("DeviceSelect::If", selected.Download(), expected);
  }
  {
    constexpr int kBins = 50;
    std::vector<unsigned> expected(kBins);
    for (unsigned value : input)
      if (value < 100) ++expected[value / 2];
    DeviceArray<unsigned> bins(kBins);
    WithWorkspace([&](void* space, size_t& bytes) {
      return cub::DeviceHistogram::HistogramEven(space, bytes, values.data(), bins.data(),
                                                 kBins + 1, 0u, 100u, kCount);
    });
    Exact("DeviceHistogram::HistogramEven", bins.Download(), expected);
  }
  return Finish();
}
