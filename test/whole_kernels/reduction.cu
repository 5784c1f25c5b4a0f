// Sum, minimum and maximum of an array in one launch: shuffles within a warp, shared memory within
// a block, and the last block to finish (an atomic ticket behind a fence) adds up the blocks'
// results. The float sum adds in a fixed order, so it is exact.
#include <climits>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 256;
constexpr int kBlocks = 48;
constexpr int kCount = 200003;  // no multiple of anything

template <class T>
struct Sum {
  __host__ __device__ T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Minimum {
  __host__ __device__ T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct Maximum {
  __host__ __device__ T operator()(T a, T b) const { return a < b ? b : a; }
};

template <class T, class Operation>
__device__ T ReduceBlock(T value, Operation operation, T identity) {
  __shared__ T of_warp[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2)
    value = operation(value, __shfl_down_sync(0xffffffffu, value, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < kThreads / 32 ? of_warp[threadIdx.x] : identity;
    for (int offset = 16; offset > 0; offset /= 2)
      value = operation(value, __shfl_down_sync(0xffffffffu, value, offset));
  }
  return value;
}

template <class T, class Operation>
__global__ void __launch_bounds__(kThreads)
    reduce(const T* input, int count, T* partial, unsigned* finished, T* output,
           Operation operation, T identity) {
  T value = identity;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads)
    value = operation(value, input[i]);
  value = ReduceBlock(value, operation, identity);

  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = value;
    __threadfence();
    is_last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  value = threadIdx.x < gridDim.x ? static_cast<volatile T*>(partial)[threadIdx.x] : identity;
  value = ReduceBlock(value, operation, identity);
  if (threadIdx.x == 0) *output = value;
}

// The same tree on the host.
template <class T, class Operation>
T BlockTree(std::vector<T> values, Operation operation, T identity) {
  const auto warp_tree = [&](T* lanes) {
    for (int offset = 16; offset > 0; offset /= 2)
      for (int i = 0; i < offset; ++i) lanes[i] = operation(lanes[i], lanes[i + offset]);
    return lanes[0];
  };
  std::vector<T> warps(32, identity);
  for (int w = 0; w < kThreads / 32; ++w) warps[w] = warp_tree(&values[w * 32]);
  return warp_tree(warps.data());
}

template <class T, class Operation>
T ReduceOnHost(const std::vector<T>& input, Operation operation, T identity) {
  std::vector<T> blocks(kThreads, identity);
  for (int b = 0; b < kBlocks; ++b) {
    std::vector<T> threads(kThreads, identity);
    for (int t = 0; t < kThreads; ++t)
      for (size_t i = b * kThreads + t; i < input.size(); i += kBlocks * kThreads)
        threads[t] = operation(threads[t], input[i]);
    blocks[b] = BlockTree(threads, operation, identity);
  }
  return BlockTree(blocks, operation, identity);
}

template <class T, class Operation>
void Test(const char* name, const std::vector<T>& input, Operation operation, T identity) {
  DeviceArray<T> values(input), partial(kBlocks), output(1);
  DeviceArray<unsigned> finished(1);
  reduce<<<kBlocks, kThreads>>>(values.data(), static_cast<int>(input.size()), partial.data(),
                                finished.data(), output.data(), operation, identity);
  Exact(name, output.Download(), {ReduceOnHost(input, operation, identity)});
}

// The warp's own reduction instruction, with groups that follow the data.
__global__ void redux(const unsigned* input, unsigned* output) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned value = input[i];
  const unsigned peers = __match_any_sync(0xffffffffu, value % 5);
  unsigned result = 0;
  // One group after the other: the instruction wants all lanes of its mask together.
  for (unsigned key = 0; key < 5; ++key) {
    if (value % 5 != key) continue;
    result = __reduce_add_sync(peers, value) ^ (__reduce_min_sync(peers, value) << 1) ^
             (__reduce_max_sync(peers, value) << 2) ^ __reduce_xor_sync(peers, value) ^
             __reduce_and_sync(peers, value) ^ (__reduce_or_sync(peers, value) << 3);
  }
  output[i] = result;
}

void TestRedux() {
  Random random(7);
  std::vector<unsigned> input(2048), expected(2048);
  for (unsigned& value : input) value = random.Next();
  for (size_t i = 0; i < input.size(); ++i) {
    unsigned sum = 0, low = UINT_MAX, high = 0, odd = 0, all = UINT_MAX, any = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
      if (input[j] % 5 != input[i] % 5) continue;
      sum += input[j];
      low = low < input[j] ? low : input[j];
      high = high > input[j] ? high : input[j];
      odd ^= input[j];
      all &= input[j];
      any |= input[j];
    }
    expected[i] = sum ^ (low << 1) ^ (high << 2) ^ odd ^ all ^ (any << 3);
  }
  DeviceArray<unsigned> values(input), output(input.size());
  redux<<<8, 256>>>(values.data(), output.data());
  Exact("redux by key", output.Download(), expected);
}

int main() {
  Random random(1);
  std::vector<int> whole(kCount);
  for (int& value : whole) value = static_cast<int>(random.Next());
  std::vector<unsigned long long> wide(kCount);
  for (auto& value : wide) value = random.Next64();
  std::vector<float> real(kCount);
  for (float& value : real) value = random.Unit();
  std::vector<double> doubles(kCount);
  for (double& value : doubles) value = random.Unit() * 1e10 + random.Unit();
  Test("minimum of int", whole, Minimum<int>(), INT_MAX);
  Test("maximum of int", whole, Maximum<int>(), INT_MIN);
  Test("sum of 64 bit", wide, Sum<unsigned long long>(), 0ull);
  Test("sum of float", real, Sum<float>(), 0.0f);
  Test("sum of double", doubles, Sum<double>(), 0.0);
  Test("minimum of float", real, Minimum<float>(), INFINITY);
  TestRedux();
  return Finish();
}
