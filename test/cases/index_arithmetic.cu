// Indexes that leave 32 bits before they become addresses. Sizes are those of the reports; memory is
// small, because the right programs test the 64-bit index and skip what does not fit, while the wrong
// ones test the index that has wrapped.
#include <cstdint>

#include "cases.h"

using namespace cases;

constexpr int kElements = 4096;

// CASE K35 index-overflow,oob-global: row * columns + column in int, for a row beyond 2^31 / columns
template <class Index>
__global__ void gather(const int* rows, const signed char* table, signed char* out, int columns, Index count) {
  const Index index = static_cast<Index>(rows[blockIdx.x]) * columns + static_cast<Index>(threadIdx.x);  //! K35
  if (index < count) out[blockIdx.x * blockDim.x + threadIdx.x] = table[index];  //! K35
}
static void K35(bool wrong) {
  int* rows = Uploaded(std::vector<int>{0, 1, 239675});  // * 8960 = 2^31 + 4352
  signed char *table = Zeros<signed char>(2 * 8960), *out = Zeros<signed char>(3 * 512);
  if (wrong) gather<int><<<3, 512>>>(rows, table, out, 8960, 2 * 8960);
  else gather<int64_t><<<3, 512>>>(rows, table, out, 8960, 2 * 8960);
}

// CASE K61 index-overflow: a loop over blocks with a stride of 2^30 and more, beyond 2^32
template <class Index>
__global__ void scale_strided(float* data, Index stride, int steps) {
  Index index = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int step = 0; step < steps; step++) {
    if (index < kElements) data[index] *= 1.0625f;  //! K61
    index += stride;  //! K61
  }
}
static void K61(bool wrong) {
  float* data = Uploaded(Ramp(kElements));
  // Four steps of 2^30 elements lead back to the first ones.
  if (wrong) scale_strided<unsigned><<<2, 128>>>(data, 1u << 30, 5);
  else scale_strided<uint64_t><<<2, 128>>>(data, 1u << 30, 5);
}

// CASE K69 index-overflow: the gradient of an embedding's row is added at row * dimension in int32
template <class Index>
__global__ void embedding_gradient(const int* rows, const float* gradient, float* weight_gradient, int dimension, Index count) {
  const Index row = rows[blockIdx.x];
  const Index offset = row * dimension;  //! K69
  for (int d = threadIdx.x; d < 64; d += blockDim.x) {
    if (offset + d < count) atomicAdd(&weight_gradient[offset + d], gradient[d]);  //! K69
  }
}
static void K69(bool wrong) {
  const int dimension = 1 << 16;
  int* rows = Uploaded(std::vector<int>{0, 1 << 16});  // 2^32 elements further
  float *gradient = Uploaded(Ramp(64)), *weights = Zeros<float>(kElements);
  if (wrong) embedding_gradient<int><<<2, 64>>>(rows, gradient, weights, dimension, kElements);
  else embedding_gradient<int64_t><<<2, 64>>>(rows, gradient, weights, dimension, kElements);
}

// CASE K35_unsigned index-overflow: the same product in unsigned, which is defined to wrap and still wrong
template <class Index>
__global__ void copy_rows(const unsigned* rows, const float* in, float* out, unsigned columns) {
  const Index offset = static_cast<Index>(rows[blockIdx.x]) * columns;  //! K35_unsigned
  if (offset + threadIdx.x < kElements) out[threadIdx.x] = in[offset + threadIdx.x];  //! K35_unsigned
}
static void K35_unsigned(bool wrong) {
  unsigned* rows = Uploaded(std::vector<unsigned>{1, 65536});
  float *in = Uploaded(Ramp(kElements)), *out = Zeros<float>(64);
  if (wrong) copy_rows<unsigned><<<2, 64>>>(rows, in, out, 65536u);
  else copy_rows<uint64_t><<<2, 64>>>(rows, in, out, 65536u);
}

// TRAP unsigned_detour: an unsigned difference is below 0 on the way and comes back before it is used
__global__ void detours(const unsigned* first, const unsigned* second, const float* in, float* out) {
  const unsigned index = first[threadIdx.x] - second[threadIdx.x] + 64;
  out[threadIdx.x] = in[index];
}
static void unsigned_detour(bool) {
  std::vector<unsigned> first(32), second(32);
  for (unsigned i = 0; i < 32; i++) first[i] = i, second[i] = 2 * i;
  detours<<<1, 32>>>(Uploaded(first), Uploaded(second), Uploaded(Ramp(256)), Zeros<float>(32));
}

// TRAP hashes: hash tables and random numbers wrap by intention, and are cut to size
__global__ void hashing(const unsigned* keys, const float* table, float* out, unsigned buckets) {
  unsigned hash = keys[threadIdx.x] * 2654435761u;
  hash = (hash ^ (hash >> 16)) * 0x85ebca6bu;
  float sum = table[hash % 97] + table[hash % buckets] + table[hash & 63] + table[hash >> 25];
  unsigned state = keys[threadIdx.x] + 12345;
  for (int i = 0; i < 8; i++) {
    state = state * 1664525u + 1013904223u;
    sum += table[(state >> 8) % 100] + table[state % 128];
  }
  int mixed = static_cast<int>(keys[threadIdx.x]);
  mixed = mixed * 31 + 17;
  mixed = mixed * 31 + 23;
  sum += table[abs(mixed % 61)];
  out[threadIdx.x] = sum;
}
static void hashes(bool) {
  std::vector<unsigned> keys(32);
  for (unsigned i = 0; i < 32; i++) keys[i] = 0x9e3779b9u * (i + 1);
  hashing<<<1, 32>>>(Uploaded(keys), Uploaded(Ramp(128)), Zeros<float>(32), 113);
}

// TRAP negative_offsets: indexes relative to the middle, negative strides, a large unsigned base that stands for a negative one
__global__ void stencil(const float* in, float* out, int stride, int offset, unsigned back) {
  const int i = threadIdx.x;
  const float* middle = in + 128;
  float sum = middle[i * stride] + middle[-i] + in[i + 130 + offset];
  const unsigned index = 140u + threadIdx.x + back;
  sum += in[index];
  for (int j = 31; j >= 0; j -= 5) sum += middle[j * stride + i];
  out[i] = sum;
}
static void negative_offsets(bool) {
  stencil<<<1, 32>>>(Uploaded(Ramp(512)), Zeros<float>(32), -2, -100, 0u - 60u);
}

// TRAP unused_index: threads beyond the end compute an index that wraps, and use none
__global__ void tail(const float* in, float* out, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) * 1000000;
  const int index = row * columns;
  if (row < rows) out[threadIdx.x] = in[index];
}
static void unused_index(bool) { tail<<<2, 64>>>(Uploaded(Ramp(64)), Zeros<float>(64), 1, 1 << 20); }

int main(int argc, char** argv) {
  const Case all[] = {{"K35", K35}, {"K61", K61}, {"K69", K69}, {"K35_unsigned", K35_unsigned}, {"unsigned_detour", unsigned_detour},
                      {"hashes", hashes}, {"negative_offsets", negative_offsets}, {"unused_index", unused_index}};
  return Main(all, argc, argv);
}
