// Layer normalisation: mean and variance by Welford's method merged over lanes (Chan, Golub,
// LeVeque 1979), in single precision and with half2 loads; and its gradient with respect to the
// scale, summed over the rows.
#include <cuda_fp16.h>

#include "digest.h"

using namespace whole_kernels;

constexpr int kThreads = 128;
constexpr float kEpsilon = 1e-5f;

struct Moments {
  float mean, squares, count;
};

__device__ Moments Merge(Moments a, Moments b) {
  const float count = a.count + b.count;
  if (count == 0.0f) return a;
  const float delta = b.mean - a.mean;
  const float share = b.count / count;
  return {a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share, count};
}

__device__ Moments MergeBlock(Moments m) {
  __shared__ Moments of_warp[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    const Moments other = {__shfl_xor_sync(0xffffffffu, m.mean, offset),
                           __shfl_xor_sync(0xffffffffu, m.squares, offset),
                           __shfl_xor_sync(0xffffffffu, m.count, offset)};
    m = Merge(m, other);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = m;
  __syncthreads();
  m = of_warp[0];
  for (int w = 1; w < kThreads / 32; ++w) m = Merge(m, of_warp[w]);
  return m;
}

__global__ void layer_norm(const float* input, const float* scale, const float* shift,
                           float* output, float* mean, float* inverse, int columns) {
  const float* row = input + blockIdx.x * columns;
  Moments m = {0.0f, 0.0f, 0.0f};
  for (int c = threadIdx.x; c < columns; c += kThreads) m = Merge(m, {row[c], 0.0f, 1.0f});
  m = MergeBlock(m);
  const float inverse_deviation = rsqrtf(m.squares / columns + kEpsilon);
  for (int c = threadIdx.x; c < columns; c += kThreads)
    output[blockIdx.x * columns + c] = (row[c] - m.mean) * inverse_deviation * scale[c] + shift[c];
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = m.mean;
    inverse[blockIdx.x] = inverse_deviation;
  }
}

__global__ void layer_norm_half(const __half2* input, __half2* output, int columns) {
  const __half2* row = input + blockIdx.x * columns / 2;
  Moments m = {0.0f, 0.0f, 0.0f};
  for (int c = threadIdx.x; c < columns / 2; c += kThreads) {
    const float2 pair = __half22float2(row[c]);
    m = Merge(m, {pair.x, 0.0f, 1.0f});
    m = Merge(m, {pair.y, 0.0f, 1.0f});
  }
  m = MergeBlock(m);
  const float inverse_deviation = rsqrtf(m.squares / columns + kEpsilon);
  for (int c = threadIdx.x; c < columns / 2; c += kThreads) {
    const float2 pair = __half22float2(row[c]);
    output[blockIdx.x * columns / 2 + c] = __floats2half2_rn((pair.x - m.mean) * inverse_deviation,
                                                             (pair.y - m.mean) * inverse_deviation);
  }
}

__global__ void scale_gradient(const float* input, const float* upstream, const float* mean,
                               const float* inverse, float* gradient, int rows, int columns) {
  __shared__ float tile[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  for (int r = threadIdx.y; r < rows; r += blockDim.y)
    if (column < columns)
      sum += upstream[r * columns + column] * (input[r * columns + column] - mean[r]) * inverse[r];
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = threadIdx.x < blockDim.y ? tile[threadIdx.x][threadIdx.y] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0 && blockIdx.x * 32 + threadIdx.y < columns)
    gradient[blockIdx.x * 32 + threadIdx.y] = sum;
}

int main() {
  constexpr int kRows = 37, kColumns = 500;
  Random random(5);
  std::vector<float> input(kRows * kColumns), upstream(kRows * kColumns), scale(kColumns),
      shift(kColumns);
  for (float& value : input) value = random.Unit() * 3.0f + 1.0f;
  for (float& value : upstream) value = random.Unit();
  for (float& value : scale) value = random.Unit() + 1.5f;
  for (float& value : shift) value = random.Unit();
  std::vector<__half2> halves(kRows * kColumns / 2);
  for (size_t i = 0; i < halves.size(); ++i)
    halves[i] = __floats2half2_rn(input[2 * i], input[2 * i + 1]);

  std::vector<double> expected(input.size()), expected_half(input.size()), gradient(kColumns);
  for (int r = 0; r < kRows; ++r) {
    const auto normalise = [&](auto value_at, auto store) {
      double mean = 0, squares = 0;
      for (int c = 0; c < kColumns; ++c) mean += value_at(c) / kColumns;
      for (int c = 0; c < kColumns; ++c) squares += std::pow(value_at(c) - mean, 2);
      for (int c = 0; c < kColumns; ++c)
        store(c, (value_at(c) - mean) / std::sqrt(squares / kColumns + kEpsilon));
    };
    normalise([&](int c) { return static_cast<double>(input[r * kColumns + c]); },
              [&](int c, double value) {
                expected[r * kColumns + c] = value * scale[c] + shift[c];
                gradient[c] += value * upstream[r * kColumns + c];
              });
    normalise(
        [&](int c) {
          const __half2 pair = halves[(r * kColumns + c) / 2];
          return static_cast<double>(
              __half2float(c % 2 == 0 ? __low2half(pair) : __high2half(pair)));
        },
        [&](int c, double value) { expected_half[r * kColumns + c] = value; });
  }

  DeviceArray<float> in(input), up(upstream), gain(scale), bias(shift), out(input.size()),
      mean(kRows), inverse(kRows), gradient_out(kColumns);
  DeviceArray<__half2> half_in(halves), half_out(halves.size());
  layer_norm<<<kRows, kThreads>>>(in.data(), gain.data(), bias.data(), out.data(), mean.data(),
                                  inverse.data(), kColumns);
  // rsqrt.approx is good to 2^-22.9 (PTX ISA, rsqrt); merging moments loses a few ulp.
  Approximate("layer norm", out.Download(), expected, 2e-6);
  scale_gradient<<<(kColumns + 31) / 32, dim3(32, 32)>>>(
      in.data(), up.data(), mean.data(), inverse.data(), gradient_out.data(), kRows, kColumns);
  Approximate("scale gradient", gradient_out.Download(), gradient, 2e-6);
  layer_norm_half<<<kRows, kThreads>>>(half_in.data(), half_out.data(), kColumns);
  std::vector<float> half_values;
  for (const __half2 pair : half_out.Download()) {
    half_values.push_back(__half2float(__low2half(pair)));
    half_values.push_back(__half2float(__high2half(pair)));
  }
  // Results are rounded to half precision: 2^-11.
  Approximate("layer norm of halves", half_values, expected_half, 0x1.1p-11);
  return Finish();
}
