// Reads of memory that nobody wrote, as operator libraries had them.
#include "cases.h"

using namespace cases;

__global__ void fill(float* out, int count, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value;
}

// Rows below `rows` are written, the padding is not.
__global__ void key_gradient(float* dk, int rows, int columns) {
  for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) dk[i] = 0.5f * i;
}

__global__ void column_sums(const float* dk, float* dw, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (int row = 0; row < rows; row++) {
    sum += dk[row * columns + column];  //! K11 K11_pool
  }
  dw[column] = sum;  //? K11 K11_pool
}

// CASE K11 uninitialised-read: the reduction takes the padding rows, too, which only an earlier owner of the memory wrote
static void K11(bool wrong) {
  const int rows = 20, padded = 32, columns = 64;
  float* dw = Unwritten<float>(columns);
  float* before = Unwritten<float>(padded * columns);
  fill<<<8, 256>>>(before, padded * columns, 1e30f);
  cudaDeviceSynchronize();
  cudaFree(before);
  float* dk = wrong ? Unwritten<float>(padded * columns) : Zeros<float>(padded * columns);
  key_gradient<<<1, 256>>>(dk, rows, columns);
  column_sums<<<1, 64>>>(dk, dw, padded, columns);
}

// CASE K11_pool uninitialised-read: the same from a pool in stream order
static void K11_pool(bool wrong) {
  const int rows = 20, padded = 32, columns = 64;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *before, *dk, *dw;
  cudaMallocAsync(&dw, columns * sizeof(float), stream);
  cudaMallocAsync(&before, padded * columns * sizeof(float), stream);
  fill<<<8, 256, 0, stream>>>(before, padded * columns, 1e30f);
  cudaFreeAsync(before, stream);
  cudaMallocAsync(&dk, padded * columns * sizeof(float), stream);
  if (!wrong) cudaMemsetAsync(dk, 0, padded * columns * sizeof(float), stream);
  key_gradient<<<1, 256, 0, stream>>>(dk, rows, columns);
  column_sums<<<1, 64, 0, stream>>>(dk, dw, padded, columns);
  cudaStreamSynchronize(stream);
}

// CASE K42 uninitialised-read,oob-local: an element of a per-thread list that was never set becomes an index
template <bool kWrong>
__global__ void gather_by_list(const float* in, float* out, int count) {
  int list[48];
  for (int i = 1; i <= count; i++) list[i] = (i * 7 + threadIdx.x) % 256;
  asm volatile("" ::"l"(list) : "memory");
  const int chosen = list[kWrong ? count + 1 : count];  //! K42
  out[threadIdx.x] = in[chosen & 255];  //! K42
}
static void K42(bool wrong) {
  float *in = Uploaded(Ramp(256)), *out = Unwritten<float>(32);
  if (wrong) gather_by_list<true><<<1, 32>>>(in, out, 44);
  else gather_by_list<false><<<1, 32>>>(in, out, 44);
}

// CASE K45 uninitialised-read: rows that attention skips are part of the largest absolute value
__global__ void attention_rows(const int* lengths, float* out, int columns) {
  if (lengths[blockIdx.x] == 0) return;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[blockIdx.x * columns + i] = lengths[blockIdx.x] * 0.5f;
}
__global__ void absolute_maximum(const float* out, float* amax, int count) {
  float largest = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    largest = fmaxf(largest, fabsf(out[i]));  //! K45
  }
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (threadIdx.x == 0) amax[0] = largest;  //? K45
}
static void K45(bool wrong) {
  const int rows = 8, columns = 64;
  int* lengths = Uploaded(std::vector<int>{5, 0, 0, 0, 3, 0, 0, 0});
  float *out = wrong ? Unwritten<float>(rows * columns) : Zeros<float>(rows * columns), *amax = Unwritten<float>(1);
  attention_rows<<<rows, 64>>>(lengths, out, columns);
  absolute_maximum<<<1, 32>>>(out, amax, rows * columns);
}

// CASE T01_counter_pair uninitialised-read: a tile's value is used although its status says that there is none
template <bool kWrong>
__global__ void sum_of_predecessors(const int* status, const float* value, float* out) {
  float sum = 0;
  for (int i = 0; i < 8; i++) {
    const bool there = status[i] != 0;
    const float v = value[i];  //! T01_counter_pair
    sum += kWrong || there ? v : 0;  //? T01_counter_pair
  }
  out[threadIdx.x] = sum;  //? T01_counter_pair
}
__global__ void publish(int* status, float* value) {
  if (threadIdx.x < 5) {
    value[threadIdx.x] = threadIdx.x;
    status[threadIdx.x] = 1;
  }
}
static void T01_counter_pair(bool wrong) {
  int* status = Zeros<int>(8);
  float *value = Unwritten<float>(8), *out = Unwritten<float>(32);
  publish<<<1, 32>>>(status, value);
  if (wrong) sum_of_predecessors<true><<<1, 32>>>(status, value, out);
  else sum_of_predecessors<false><<<1, 32>>>(status, value, out);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K11", K11}, {"K11_pool", K11_pool}, {"K42", K42}, {"K45", K45}, {"T01_counter_pair", T01_counter_pair}};
  return Main(all, argc, argv);
}
