// Numerical faults as operator libraries had them: NaN and infinity made, ranges left, precision
// lost. Accumulation, normalisation and attention as they should be, too.
#include <cuda_fp16.h>

#include <cmath>

#include "cases.h"

using namespace cases;

static __half* Halves(int count, float value) {
  std::vector<__half> values(count, __float2half(value));
  return Uploaded(values);
}

// CASE K27 nan-created: two partial attentions without tokens are merged: (-inf) - (-inf)
template <bool kWrong>
__global__ void merge_partials(const float* a, const float* b, const float* x, const float* y, float* out, int count) {
  const int i = threadIdx.x;
  if (i >= count) return;
  float m = fmaxf(a[i], b[i]);
  if (!kWrong && m == -INFINITY) m = 0;
  const float wa = __expf(a[i] - m);  //! K27
  const float wb = __expf(b[i] - m);  //! K27
  out[i] = (wa * x[i] + wb * y[i]) / (kWrong ? wa + wb : fmaxf(wa + wb, 1e-20f));
}
static void K27(bool wrong) {
  std::vector<float> a = Ramp(32), b = Ramp(32);
  a[3] = b[3] = a[7] = -INFINITY;  // one side without tokens is usual
  float *da = Uploaded(a), *db = Uploaded(b), *x = Uploaded(Ramp(32)), *out = Zeros<float>(32);
  if (wrong) merge_partials<true><<<1, 32>>>(da, db, x, x, out, 32);
  else merge_partials<false><<<1, 32>>>(da, db, x, x, out, 32);
}

// CASE K29 fp-overflow: the sum of P*V is kept in half over thousands of keys
template <bool kWrong>
__global__ void weighted_values(const __half* p, const __half* v, __half* out, int keys) {
  __half acc = __float2half(0);
  float wide = 0;
  const float scale = kWrong ? 1.0f : 0.125f;
  for (int j = 0; j < keys; j++) {
    if (kWrong) acc = __hfma(p[j], v[j * 32 + threadIdx.x], acc);  //! K29
    else wide += __half2float(p[j]) * scale * __half2float(v[j * 32 + threadIdx.x]);
  }
  out[threadIdx.x] = kWrong ? acc : __float2half(wide);
}
static void K29(bool wrong) {
  const int keys = 600;
  __half *p = Halves(keys, 1), *v = Halves(keys * 32, 128), *out = Halves(32, 0);
  if (wrong) weighted_values<true><<<1, 32>>>(p, v, out, keys);
  else weighted_values<false><<<1, 32>>>(p, v, out, keys);
}

// CASE K30 fp-overflow: a reduction in two launches keeps its partial sum in the half output
__global__ void add_up_half(const __half* in, __half* out, int count, bool first) {
  float sum = first || threadIdx.x > 0 ? 0 : __half2float(out[0]);
  for (int i = threadIdx.x; i < count; i += 32) sum += __half2float(in[i]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0) out[0] = __float2half(sum);  //! K30
}
__global__ void add_up(const __half* in, float* partial, __half* out, int count, bool last) {
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += 32) sum += __half2float(in[i]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0) partial[0] += sum;
  if (threadIdx.x == 0 && last) out[0] = __float2half(partial[0]);
}
static void K30(bool wrong) {
  const int count = 2048;
  __half *plus = Halves(count, 64), *minus = Halves(count, -64), *out = Halves(1, 0);
  float* partial = Zeros<float>(1);
  if (wrong) {
    add_up_half<<<1, 32>>>(plus, out, count, true);
    add_up_half<<<1, 32>>>(minus, out, count, false);
  } else {
    add_up<<<1, 32>>>(plus, partial, out, count, false);
    add_up<<<1, 32>>>(minus, partial, out, count, true);
  }
}

// CASE K51 nan-created: a row that is masked completely has the sum 0, and is divided by it
template <bool kWrong>
__global__ void masked_softmax(const float* scores, const int* lengths, float* out, int columns) {
  const int row = blockIdx.x, length = lengths[row];
  float sum = 0;
  for (int j = 0; j < length; j++) sum += __expf(scores[row * columns + j]);
  for (int j = threadIdx.x; j < columns; j += 32) {
    const float e = j < length ? __expf(scores[row * columns + j]) : 0;
    out[row * columns + j] = kWrong ? __fdiv_rn(e, sum) : sum > 0 ? __fdiv_rn(e, sum) : 0;  //! K51
  }
}
static void K51(bool wrong) {
  const int rows = 4, columns = 16;
  std::vector<float> scores(rows * columns);
  for (int i = 0; i < rows * columns; i++) scores[i] = 0.1f * (i % 7);
  float *in = Uploaded(scores), *out = Zeros<float>(rows * columns);
  int* lengths = Uploaded(std::vector<int>{16, 9, 0, 3});
  if (wrong) masked_softmax<true><<<rows, 32>>>(in, lengths, out, columns);
  else masked_softmax<false><<<rows, 32>>>(in, lengths, out, columns);
}

// CASE K52 fp-overflow: activations beyond 65504 are converted to half for the tensor-core path
__global__ void to_half(const float* in, __half* out, const float* scale, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __float2half(in[i] * scale[0]);  //! K52
}
__global__ void dot_rows(const __half* a, const __half* b, const float* scale, float* out, int columns) {
  float sum = 0;
  for (int k = 0; k < columns; k++) sum += __half2float(a[threadIdx.x * columns + k]) * __half2float(b[k]);
  out[threadIdx.x] = sum / scale[0];
}
static void K52(bool wrong) {
  const int rows = 16, columns = 32;
  std::vector<float> activations = Ramp(rows * columns);
  activations[5 * columns + 9] = 74213.5f;
  float *in = Uploaded(activations), *out = Zeros<float>(rows);
  float* scale = Uploaded(std::vector<float>{wrong ? 1.0f : 0.25f});
  __half *a = Halves(rows * columns, 0), *b = Halves(columns, 0.5f);
  to_half<<<2, 256>>>(in, a, scale, rows * columns);
  dot_rows<<<1, rows>>>(a, b, scale, out, columns);
}

// CASE K53 fp-overflow: a mean in half divides by a count that half cannot hold
template <bool kWrong>
__global__ void mean_of(const float* sum, float count, __half* out) {
  if (kWrong) out[0] = __hdiv(__float2half(sum[0]), __float2half(count));  //! K53
  else out[0] = __float2half(sum[0] / count);
}
static void K53(bool wrong) {
  float* sum = Uploaded(std::vector<float>{65520.0f});
  __half* out = Halves(1, 0);
  if (wrong) mean_of<true><<<1, 1>>>(sum, 65520.0f, out);
  else mean_of<false><<<1, 1>>>(sum, 65520.0f, out);
}

// CASE K54 precision-loss: a constant of type float in an expression of type double
template <bool kWrong>
__global__ void first_index(const double* length, int* out) {
  out[threadIdx.x] = static_cast<int>((kWrong ? 0.12f : 0.12) * length[threadIdx.x]);  //! K54
}
static void K54(bool wrong) {
  double* length = Uploaded(std::vector<double>(32, 200.0));
  int* out = Zeros<int>(32);
  if (wrong) first_index<true><<<1, 32>>>(length, out);
  else first_index<false><<<1, 32>>>(length, out);
}

// CASE K29_attention fp-overflow,nan-created: attention in half exponentiates scores as they are
template <bool kWrong>
__global__ void attention_scores(const float* scores, __half* weights, int columns) {
  const int row = blockIdx.x;
  float largest = -INFINITY;
  for (int j = 0; j < columns; j++) largest = fmaxf(largest, scores[row * columns + j]);
  float sum = 0;
  for (int j = threadIdx.x; j < columns; j += 32) {
    const float e = __expf(scores[row * columns + j] - (kWrong ? 0 : largest));
    const __half h = __float2half(e);  //! K29_attention
    sum += __half2float(h);
    weights[row * columns + j] = h;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  for (int j = threadIdx.x; j < columns; j += 32)
    weights[row * columns + j] = __float2half(__half2float(weights[row * columns + j]) / sum);  //? K29_attention
}
static void K29_attention(bool wrong) {
  const int rows = 4, columns = 64;
  std::vector<float> scores(rows * columns);
  for (int i = 0; i < rows * columns; i++) scores[i] = static_cast<float>(i % 23) * 0.51f;
  scores[2 * columns + 5] = 11.4f;
  float* in = Uploaded(scores);
  __half* weights = Halves(rows * columns, 0);
  if (wrong) attention_scores<true><<<rows, 32>>>(in, weights, columns);
  else attention_scores<false><<<rows, 32>>>(in, weights, columns);
}

// CASE stagnation precision-loss: a sum of ones in half stands still at 2048
template <bool kWrong>
__global__ void count_in_half(const __half* in, __half* out, int count) {
  __half acc = __float2half(0);
  float wide = 0;
  for (int i = 0; i < count; i++) {
    if (kWrong) acc = __hadd(acc, in[i]);  //! stagnation
    else wide += __half2float(in[i]);
  }
  out[threadIdx.x] = kWrong ? acc : __float2half(wide);
}
static void stagnation(bool wrong) {
  const int count = 3000;
  __half *in = Halves(count, 1), *out = Halves(32, 0);
  if (wrong) count_in_half<true><<<1, 32>>>(in, out, count);
  else count_in_half<false><<<1, 32>>>(in, out, count);
}

// CASE negative_variance nan-created: mean(x*x) - mean(x)^2 is a little below 0, and its root is taken
template <bool kWrong>
__global__ void layer_norm(const float* in, float* out, int columns) {
  const float* x = in + blockIdx.x * columns;
  float sum = 0, squares = 0;
  for (int j = threadIdx.x; j < columns; j += 32) {
    sum += x[j];
    squares += x[j] * x[j];
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  }
  const float mean = sum / columns;
  float variance = squares / columns - mean * mean;
  if (!kWrong) {
    variance = 0;
    for (int j = threadIdx.x; j < columns; j += 32) variance += (x[j] - mean) * (x[j] - mean);
    for (int offset = 16; offset > 0; offset /= 2) variance += __shfl_xor_sync(0xffffffffu, variance, offset);
    variance /= columns;
  }
  const float deviation = sqrtf(variance + (kWrong ? 1e-12f : 1e-5f));  //! negative_variance
  for (int j = threadIdx.x; j < columns; j += 32) out[blockIdx.x * columns + j] = (x[j] - mean) / deviation;
}
static void negative_variance(bool wrong) {
  const int rows = 8, columns = 96;
  std::vector<float> values(rows * columns);
  for (int i = 0; i < rows * columns; i++) values[i] = 1000.1f + 0.37f * static_cast<float>(i / columns) + 1e-4f * static_cast<float>(i % 3);
  float *in = Uploaded(values), *out = Zeros<float>(rows * columns);
  if (wrong) layer_norm<true><<<rows, 32>>>(in, out, columns);
  else layer_norm<false><<<rows, 32>>>(in, out, columns);
}

// TRAP sigmoid: exp(-x) overflows for x below -88, and 1 / (1 + inf) is the right 0
__global__ void sigmoids(const float* in, float* out, int count) {
  const int i = threadIdx.x;
  if (i < count) out[i] = 1.0f / (1.0f + expf(-in[i]));
}
static void sigmoid(bool) {
  std::vector<float> values = Ramp(32);
  values[4] = -120;
  values[9] = 150;
  float *in = Uploaded(values), *out = Zeros<float>(32);
  sigmoids<<<1, 32>>>(in, out, 32);
}

// TRAP masked: -inf masks scores, exp of them is 0, the maximum is over what is left
__global__ void softmax_with_mask(const float* scores, const int* mask, float* out, int columns) {
  const int row = blockIdx.x;
  float largest = -INFINITY;
  for (int j = 0; j < columns; j++) largest = fmaxf(largest, mask[j] != 0 ? scores[row * columns + j] : -INFINITY);
  float sum = 0;
  for (int j = 0; j < columns; j++) sum += expf((mask[j] != 0 ? scores[row * columns + j] : -INFINITY) - largest);
  for (int j = threadIdx.x; j < columns; j += 32)
    out[row * columns + j] = expf((mask[j] != 0 ? scores[row * columns + j] : -INFINITY) - largest) / sum;
}
static void masked(bool) {
  const int rows = 2, columns = 40;
  std::vector<int> mask(columns);
  for (int j = 0; j < columns; j++) mask[j] = j % 3;
  std::vector<float> scores(rows * columns);
  for (int i = 0; i < rows * columns; i++) scores[i] = static_cast<float>(i % 31) * 9.0f - 100.0f;
  float *in = Uploaded(scores), *out = Zeros<float>(rows * columns);
  softmax_with_mask<<<rows, 32>>>(in, Uploaded(mask), out, columns);
}

// TRAP guarded: the quotient is chosen after it was formed, so 1 / 0 comes to nothing
__global__ void normalise(const float* sums, const float* in, float* out, int count) {
  const int i = threadIdx.x;
  if (i >= count) return;
  const float inverse = 1.0f / sums[i];
  out[i] = sums[i] == 0.0f ? 0.0f : in[i] * inverse;
}
static void guarded(bool) {
  std::vector<float> sums = Ramp(32);
  sums[6] = 0;
  float *in = Uploaded(Ramp(32)), *out = Zeros<float>(32);
  normalise<<<1, 32>>>(Uploaded(sums), in, out, 32);
}

// TRAP product: a matrix product of half operands that accumulates in float
__global__ void products(const __half* a, const __half* b, __half* c, int n) {
  const int row = threadIdx.x / n, column = threadIdx.x % n;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += __half2float(a[row * n + k]) * __half2float(b[k * n + column]);
  c[row * n + column] = __float2half(sum);
}
static void product(bool) {
  const int n = 8;
  products<<<1, n * n>>>(Halves(n * n, 0.37f), Halves(n * n, -1.91f), Halves(n * n, 0), n);
}

// TRAP functions: what the mathematical library does inside of its functions is its own
__global__ void library_functions(const float* in, float* out, int count) {
  const int i = threadIdx.x;
  if (i >= count) return;
  const float x = in[i];
  out[i] = powf(fabsf(x), 1.7f) + tanhf(x) + erff(x) + log1pf(fabsf(x)) + sinf(x) + fmodf(x, 3.0f) + cbrtf(x) + expm1f(-fabsf(x)) + atan2f(x, 2.0f);
}
static void functions(bool) {
  std::vector<float> values = Ramp(32);
  values[1] = 0;
  values[2] = -40;
  values[3] = 1e-30f;
  float *in = Uploaded(values), *out = Zeros<float>(32);
  library_functions<<<1, 32>>>(in, out, 32);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K27", K27}, {"K29", K29}, {"K30", K30}, {"K51", K51}, {"K52", K52}, {"K53", K53}, {"K54", K54}, {"K29_attention", K29_attention},
                      {"stagnation", stagnation}, {"negative_variance", negative_variance}, {"sigmoid", sigmoid}, {"masked", masked}, {"guarded", guarded},
                      {"product", product}, {"functions", functions}};
  return Main(all, argc, argv);
}
