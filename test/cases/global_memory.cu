// Races in global memory, atomics that are none, and grid barriers, that operator libraries had.
#include <cfloat>

#include "cases.h"

using namespace cases;

// CASE K19 race-global|atomics-misuse: the block that draws the last ticket reads the partial results without an acquire
template <bool kWrong>
__global__ void sum_last_block(const float* in, float* staging, unsigned* counter, float* out) {
  __shared__ float partial[4];
  __shared__ bool is_last;
  float sum = in[blockIdx.x * 128 + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    staging[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];  //! K19
    __threadfence();
    is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
    if constexpr (!kWrong) __threadfence();
  }
  __syncthreads();
  if (is_last && threadIdx.x < gridDim.x) {
    out[threadIdx.x] = staging[threadIdx.x];  //! K19
  }
}
static void K19(bool wrong) {
  float *in = Uploaded(Ramp(8 * 128)), *staging = Unwritten<float>(8), *out = Unwritten<float>(8);
  unsigned* counter = Zeros<unsigned>(1);
  if (wrong) sum_last_block<true><<<8, 128>>>(in, staging, counter, out);
  else sum_last_block<false><<<8, 128>>>(in, staging, counter, out);
}

// CASE K19_release race-global|atomics-misuse: the partial results are not released before the ticket is drawn
template <bool kWrong>
__global__ void sum_last_block_release(const float* in, float* staging, unsigned* counter, float* out) {
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += in[blockIdx.x * 16 + i];
    staging[blockIdx.x] = sum;  //! K19_release
    if constexpr (!kWrong) __threadfence();
    if (atomicAdd(counter, 1u) == gridDim.x - 1) {
      __threadfence();
      float total = 0;
      for (unsigned i = 0; i < gridDim.x; i++) {
        total += staging[i];  //! K19_release
      }
      out[0] = total;
    }
  }
}
static void K19_release(bool wrong) {
  float *in = Uploaded(Ramp(8 * 16)), *staging = Unwritten<float>(8), *out = Unwritten<float>(1);
  unsigned* counter = Zeros<unsigned>(1);
  if (wrong) sum_last_block_release<true><<<8, 32>>>(in, staging, counter, out);
  else sum_last_block_release<false><<<8, 32>>>(in, staging, counter, out);
}

// CASE K21 race-global|stream-race: a dependent launch reads what the kernel before still writes
__global__ void gradient_writer(float* d_out) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  d_out[blockIdx.x * 128 + threadIdx.x] = blockIdx.x + 0.25f;  //! K21
}
template <bool kWrong>
__global__ void row_dot(const float* out, const float* d_out, float* sums) {
  const float o = out[blockIdx.x * 128 + threadIdx.x];
  if constexpr (!kWrong) asm volatile("griddepcontrol.wait;" ::: "memory");
  float sum = o * d_out[blockIdx.x * 128 + threadIdx.x];  //! K21
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) sums[blockIdx.x * 4 + threadIdx.x / 32] = sum;
}
static void K21(bool wrong) {
  float *out = Uploaded(Ramp(4 * 128)), *d_out = Zeros<float>(4 * 128), *sums = Unwritten<float>(16);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaDeviceSynchronize();
  gradient_writer<<<4, 128, 0, stream>>>(d_out);  //? K21
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (wrong) {
    cudaLaunchKernelEx(&config, row_dot<true>, (const float*)out, (const float*)d_out, sums);  //? K21
  } else {
    cudaLaunchKernelEx(&config, row_dot<false>, (const float*)out, (const float*)d_out, sums);
  }
}

// CASE K25 race-global|atomics-misuse,missing-warp-sync: the fall-back of an atomic addition is none
template <bool kWrong>
__device__ void AddDouble(double* place, double value) {
  if constexpr (kWrong) {
    *place = *place + value;  //! K25
  } else {
    unsigned long long* const bits = reinterpret_cast<unsigned long long*>(place);
    unsigned long long old = *reinterpret_cast<volatile unsigned long long*>(bits), assumed;
    do {
      assumed = old;
      old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (old != assumed);
  }
}
template <bool kWrong>
__global__ void count_ones(double* total) { AddDouble<kWrong>(total, 1.0); }  //? K25
static void K25(bool wrong) {
  double* total = Zeros<double>(1);
  if (wrong) count_ones<true><<<4, 256>>>(total);
  else count_ones<false><<<4, 256>>>(total);
}

// CASE K26 atomics-misuse: the maximum of floats as that of unsigned integers
template <bool kWrong>
__global__ void float_maximum(const float* in, float* largest) {
  const float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  if constexpr (kWrong) {
    atomicMax(reinterpret_cast<unsigned*>(largest), __float_as_uint(value));  //! K26
  } else {
    if (value >= 0) atomicMax(reinterpret_cast<int*>(largest), __float_as_int(value));
    else atomicMin(reinterpret_cast<unsigned*>(largest), __float_as_uint(value));
  }
}
__global__ void set_value(float* place, float value) { *place = value; }                         //? K26
__global__ void scale_by(const float* place, float* out) { out[threadIdx.x] = *place * 0.5f; }  //? K26
static void K26(bool wrong) {
  float *in = Uploaded(Ramp(512)), *largest = Unwritten<float>(1), *out = Unwritten<float>(32);
  set_value<<<1, 1>>>(largest, -1.0f);
  if (wrong) float_maximum<true><<<2, 256>>>(in, largest);
  else float_maximum<false><<<2, 256>>>(in, largest);
  scale_by<<<1, 32>>>(largest, out);
}

// CASE K48 deadlock: a grid barrier made by hand, with more blocks than fit on the device
__global__ void wait_for_all_blocks(unsigned* counter, float* out) {
  extern __shared__ float large[];
  large[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1u);
    while (*(volatile unsigned*)counter < gridDim.x) {  //! K48
    }
    __threadfence();
  }
  __syncthreads();  //? K48
  out[blockIdx.x * 32 + threadIdx.x] = large[31 - threadIdx.x];
}
static void K48(bool wrong) {
  int processors = 0;
  const int bytes = 200 * 1024;  // one block per multiprocessor
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaFuncSetAttribute(wait_for_all_blocks, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  unsigned* counter = Zeros<unsigned>(1);
  float* out = Unwritten<float>((processors + 1) * 32);
  wait_for_all_blocks<<<wrong ? processors + 1 : processors / 2, 32, bytes>>>(counter, out);
}

// CASE K49 deadlock|race-global|atomics-misuse: a grid barrier used twice whose counter goes on before all have seen it full
template <bool kWrong>
__device__ void GridBarrier(unsigned* counters, unsigned round) {
  __syncthreads();  //? K49
  if (threadIdx.x == 0) {
    unsigned* const counter = kWrong ? counters : counters + round;
    __threadfence();
    if (atomicAdd(counter, 1u) == gridDim.x - 1) {  //! K49
      if constexpr (kWrong) atomicExch(counter, 0u);  //! K49
    }
    if constexpr (kWrong) {
      while (*(volatile unsigned*)counter != 0) {  //! K49
      }
    } else {
      while (*(volatile unsigned*)counter != gridDim.x) {
      }
    }
    __threadfence();
  }
  __syncthreads();  //? K49
}
template <bool kWrong>
__global__ void two_rounds(unsigned* counters, float* data) {
  const int i = blockIdx.x * 32 + threadIdx.x, mirrored = gridDim.x * 32 - 1 - i;
  data[i] = i;  //? K49
  GridBarrier<kWrong>(counters, 0);
  const float other = data[mirrored];  //? K49
  GridBarrier<kWrong>(counters, 1);
  data[i] = other;  //? K49
}
static void K49(bool wrong) {
  unsigned* counters = Zeros<unsigned>(2);
  float* data = Unwritten<float>(16 * 32);
  if (wrong) two_rounds<true><<<16, 32>>>(counters, data);
  else two_rounds<false><<<16, 32>>>(counters, data);
}

// CASE K55 race-global,missing-warp-sync,atomics-misuse: a scatter with an index that occurs several times
template <bool kWrong>
__global__ void scatter(const int* index, const float* values, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    if constexpr (kWrong) {
      out[index[i]] = values[i];  //! K55
    } else {
      atomicAdd(&out[index[i]], values[i]);
    }
  }
}
static void K55(bool wrong) {
  std::vector<int> index(256);
  for (int i = 0; i < 256; i++) index[i] = i % 43 == 0 ? 0 : i;
  int* device_index = Uploaded(index);
  float *values = Uploaded(Ramp(256)), *out = Zeros<float>(256);
  if (wrong) scatter<true><<<2, 128>>>(device_index, values, out, 256);
  else scatter<false><<<2, 128>>>(device_index, values, out, 256);
}

// CASE K56 race-global|missing-warp-sync: a tile is stored by one layout and read back by another
template <bool kWrong>
__global__ void change_layout(const float* in, float* scratch, float* out) {
  for (int i = 0; i < 4; i++) {
    scratch[threadIdx.x * 4 + i] = in[threadIdx.x * 4 + i] * 2;  //! K56
  }
  if constexpr (!kWrong) __syncthreads();
  KEEP;
  const int first = threadIdx.x % 64 * 8;
  float sum = 0;
  for (int i = 0; i < 8; i++) {
    sum += scratch[first + i];  //! K56
  }
  out[threadIdx.x] = sum;
}
static void K56(bool wrong) {
  float *in = Uploaded(Ramp(512)), *scratch = Unwritten<float>(512), *out = Unwritten<float>(128);
  cudaMemset(scratch, 0, 512 * sizeof(float));
  if (wrong) change_layout<true><<<1, 128>>>(in, scratch, out);
  else change_layout<false><<<1, 128>>>(in, scratch, out);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K19", K19}, {"K19_release", K19_release}, {"K21", K21}, {"K25", K25}, {"K26", K26}, {"K48", K48}, {"K49", K49},
                      {"K55", K55}, {"K56", K56}};
  return Main(all, argc, argv);
}
