// Arithmetic that goes wrong in one way each: `numeric_faults NAME`. Names that end in _wrong have
// exactly one fault, made at the line that ends in "//! NAME"; the others are right.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
  } while (0)

constexpr int kThreads = 64;

__global__ void mean(const float* sums, const float* counts, float* out) {
  const int i = threadIdx.x;
  out[i] = sums[i] / counts[i];  //! mean_wrong
}
__global__ void mean_guarded(const float* sums, const float* counts, float* out) {
  const int i = threadIdx.x;
  out[i] = counts[i] == 0 ? 0 : sums[i] / counts[i];
}

// The fourth thread's quotient is 1/0.
__global__ void inverse(const float* x, float* out) {
  out[threadIdx.x] = 1 / x[threadIdx.x];  //! inverse_wrong
}

__global__ void exponential(const float* x, __half* out, float shift) {
  const __half value = __float2half(x[threadIdx.x] - shift);
  out[threadIdx.x] = hexp(value);  //! exponential_wrong
}

__global__ void merge(const float* a, const float* b, float* out, bool guarded) {
  const int i = threadIdx.x;
  float m = fmaxf(a[i], b[i]);
  if (guarded && m == -INFINITY) m = 0;
  out[i] = __expf(a[i] - m) + 1;  //! merge_wrong
}

// In half the sum stands still at 2048.
__global__ void sum_of_halves(const float* x, float* out, int count) {
  __half sum = __float2half(0);
  for (int i = 0; i < count; i++) sum = __hadd(sum, __float2half(x[i % kThreads]));  //! sum_of_halves_wrong
  out[threadIdx.x] = __half2float(sum);
}
__global__ void sum_of_floats(const float* x, float* out, int count) {
  float sum = 0;
  for (int i = 0; i < count; i++) sum += __half2float(__float2half(x[i % kThreads]));
  out[threadIdx.x] = sum;
}

__global__ void narrow(const float* x, __half2* out, float scale) {
  const int i = threadIdx.x;
  out[i] = __floats2half2_rn(x[i] * scale, 1.0f);  //! narrow_wrong
}

__global__ void squares_of_pairs(const __half2* x, __half2* out) {
  out[threadIdx.x] = __hmul2(x[threadIdx.x], x[threadIdx.x]);  //! squares_of_pairs_wrong
}

__global__ void squares_of_bfloats(const __nv_bfloat16* x, __nv_bfloat16* out) {
  out[threadIdx.x] = __hmul(x[threadIdx.x], x[threadIdx.x]);  //! squares_of_bfloats_wrong
}

__global__ void product_in_double(const double* x, double* out) {
  out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];  //! product_in_double_wrong
}

// Right: infinities by design, NaN that is asked for, underflow of an exponential.
__global__ void masked_softmax(const float* x, float* out) {
  __shared__ float row[kThreads];
  const int i = threadIdx.x;
  row[i] = i % 4 == 3 ? -INFINITY : x[i];
  __syncthreads();
  float largest = -INFINITY, sum = 0;
  for (int k = 0; k < kThreads; k++) largest = fmaxf(largest, row[k]);
  for (int k = 0; k < kThreads; k++) sum += __expf(row[k] - largest);
  out[i] = __expf(row[i] - largest) / sum;
}
__global__ void nan_to_zero(const float* x, float* out) {
  const float value = x[threadIdx.x];
  out[threadIdx.x] = isnan(value) || isinf(value) ? 0 : value;
}

static bool Is(const char* name, const char* wanted) { return std::strcmp(name, wanted) == 0; }

template <class T>
static T* Device(const float (&values)[kThreads]) {
  T host[kThreads], *memory;
  for (int i = 0; i < kThreads; i++) host[i] = T(values[i]);
  CHECK(cudaMalloc(&memory, sizeof host));
  CHECK(cudaMemcpy(memory, host, sizeof host, cudaMemcpyHostToDevice));
  return memory;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  float ramp[kThreads], ones[kThreads], zeros[kThreads] = {}, special[kThreads];
  for (int i = 0; i < kThreads; i++) {
    ramp[i] = float(i) / 4;
    ones[i] = special[i] = 1;
  }
  special[3] = special[5] = 0;
  float *x = Device<float>(ramp), *one = Device<float>(ones), *zero = Device<float>(special);
  double* out;
  CHECK(cudaMalloc(&out, kThreads * sizeof(double)));
  auto* floats = reinterpret_cast<float*>(out);
  auto* halves = reinterpret_cast<__half*>(out);
  if (Is(name, "mean_wrong")) {
    mean<<<1, kThreads>>>(Device<float>(special), zero, floats);
  } else if (Is(name, "mean_guarded")) {
    mean_guarded<<<1, kThreads>>>(Device<float>(special), zero, floats);
  } else if (Is(name, "inverse_wrong")) {
    inverse<<<1, kThreads>>>(zero, floats);
  } else if (Is(name, "inverse")) {
    inverse<<<1, kThreads>>>(one, floats);
  } else if (Is(name, "exponential_wrong")) {
    exponential<<<1, kThreads>>>(x, halves, 0);
  } else if (Is(name, "exponential")) {
    exponential<<<1, kThreads>>>(x, halves, ramp[kThreads - 1]);
  } else if (Is(name, "merge_wrong") || Is(name, "merge_guarded")) {
    ramp[7] = ramp[9] = -INFINITY;
    float* a = Device<float>(ramp);
    ramp[9] = 0;
    merge<<<1, kThreads>>>(a, Device<float>(ramp), floats, Is(name, "merge_guarded"));
  } else if (Is(name, "sum_of_halves_wrong")) {
    sum_of_halves<<<1, kThreads>>>(one, floats, 2100);
  } else if (Is(name, "sum_of_halves")) {
    sum_of_halves<<<1, kThreads>>>(one, floats, 2000);
  } else if (Is(name, "sum_of_floats")) {
    sum_of_floats<<<1, kThreads>>>(one, floats, 2100);
  } else if (Is(name, "narrow_wrong")) {
    narrow<<<1, kThreads>>>(x, reinterpret_cast<__half2*>(out), 5000);
  } else if (Is(name, "narrow")) {
    narrow<<<1, kThreads>>>(x, reinterpret_cast<__half2*>(out), 50);
  } else if (Is(name, "squares_of_pairs_wrong") || Is(name, "squares_of_pairs")) {
    for (float& value : ramp) value *= Is(name, "squares_of_pairs_wrong") ? 20 : 1;
    squares_of_pairs<<<1, kThreads / 2>>>(reinterpret_cast<__half2*>(Device<__half>(ramp)),
                                          reinterpret_cast<__half2*>(out));
  } else if (Is(name, "squares_of_bfloats_wrong") || Is(name, "squares_of_bfloats")) {
    if (Is(name, "squares_of_bfloats_wrong")) ramp[40] = 1e30f;
    squares_of_bfloats<<<1, kThreads>>>(Device<__nv_bfloat16>(ramp),
                                        reinterpret_cast<__nv_bfloat16*>(out));
  } else if (Is(name, "product_in_double_wrong") || Is(name, "product_in_double")) {
    double large[kThreads], *memory = Device<double>(ramp);
    CHECK(cudaMemcpy(large, memory, sizeof large, cudaMemcpyDeviceToHost));
    if (Is(name, "product_in_double_wrong")) large[11] = 1e200;
    CHECK(cudaMemcpy(memory, large, sizeof large, cudaMemcpyHostToDevice));
    product_in_double<<<1, kThreads>>>(memory, out);
  } else if (Is(name, "masked_softmax")) {
    masked_softmax<<<1, kThreads>>>(x, floats);
  } else if (Is(name, "nan_to_zero")) {
    zeros[5] = NAN;
    zeros[6] = INFINITY;
    nan_to_zero<<<1, kThreads>>>(Device<float>(zeros), floats);
  } else {
    std::printf("no such name: %s\n", name);
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
