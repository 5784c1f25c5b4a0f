// Ways in which device memory is written, or only almost: `unwritten_memory NAME`. Names that end in
// _wrong read some element that nobody has written.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
  } while (0)

constexpr int kWords = 256, kBytes = kWords * 4;

__global__ void read_words(const unsigned* from, unsigned* to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}
__global__ void read_bytes(const unsigned char* from, unsigned char* to, int first, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[first + i] + 1;
}
__global__ void write_words(unsigned* to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = i;
}
__global__ void write_vectors(uint4* to) { to[threadIdx.x] = make_uint4(1, 2, 3, 4); }
__global__ void add(unsigned* to) { atomicAdd(to + threadIdx.x, 1u); }
__global__ void sum(const float* from, float* to, int count) {
  float total = 0;
  for (int i = 0; i < count; i++) total += from[i];
  to[0] = total;
}
__global__ void guarded(const unsigned* from, unsigned* to, int count) {
  const unsigned value = from[threadIdx.x];
  if (threadIdx.x < count) to[threadIdx.x] = value;
}
__global__ void tail_of_mask(const unsigned* from, unsigned* to) { to[0] = from[0] & 0xffffu; }

static bool Is(const char* name, const char* wanted) { return std::strcmp(name, wanted) == 0; }

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  static unsigned host[kWords];
  unsigned *memory, *other, *out;
  CHECK(cudaMalloc(&memory, kBytes));
  CHECK(cudaMalloc(&other, kBytes));
  CHECK(cudaMalloc(&out, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  auto* bytes = reinterpret_cast<unsigned char*>(memory);
  auto* out_bytes = reinterpret_cast<unsigned char*>(out);
  if (Is(name, "copied")) {
    CHECK(cudaMemcpy(memory, host, kBytes, cudaMemcpyHostToDevice));
    read_words<<<1, 32>>>(memory, out, kWords);
  } else if (Is(name, "copied_half_wrong")) {
    CHECK(cudaMemcpy(memory, host, kBytes / 2, cudaMemcpyHostToDevice));
    read_words<<<1, 32>>>(memory, out, kWords / 2 + 1);
  } else if (Is(name, "copied_in_stream")) {
    CHECK(cudaMemcpyAsync(memory, host, kBytes, cudaMemcpyHostToDevice, stream));
    read_words<<<1, 32, 0, stream>>>(memory, out, kWords);
  } else if (Is(name, "odd_bytes")) {
    CHECK(cudaMemset(bytes + 5, 1, 90));
    read_bytes<<<1, 32>>>(bytes, out_bytes, 5, 90);
  } else if (Is(name, "one_byte_before_wrong")) {
    CHECK(cudaMemset(bytes + 5, 1, 90));
    read_bytes<<<1, 32>>>(bytes, out_bytes, 4, 90);
  } else if (Is(name, "one_byte_behind_wrong")) {
    CHECK(cudaMemset(bytes + 5, 1, 90));
    read_bytes<<<1, 32>>>(bytes, out_bytes, 6, 90);
  } else if (Is(name, "rows")) {
    CHECK(cudaMemset2D(memory, 64, 1, 24, 8));
    for (int row = 0; row < 8; row++) read_words<<<1, 32>>>(memory + row * 16, out, 6);
  } else if (Is(name, "between_rows_wrong")) {
    CHECK(cudaMemset2D(memory, 64, 1, 24, 8));
    read_words<<<1, 32>>>(memory, out, 16);
  } else if (Is(name, "copy_of_written")) {
    CHECK(cudaMemset(other, 0, kBytes));
    CHECK(cudaMemcpy(memory, other, kBytes, cudaMemcpyDeviceToDevice));
    read_words<<<1, 32>>>(memory, out, kWords);
  } else if (Is(name, "copy_of_unwritten_wrong")) {
    CHECK(cudaMemcpy(memory, other, kBytes, cudaMemcpyDeviceToDevice));
    read_words<<<1, 32>>>(memory, out, 1);
  } else if (Is(name, "copy_over_written_wrong")) {
    CHECK(cudaMemset(memory, 0, kBytes));
    CHECK(cudaMemcpy(memory + 3, other + 2, 64, cudaMemcpyDeviceToDevice));
    read_words<<<1, 32>>>(memory, out, 4);
  } else if (Is(name, "beside_copy_of_unwritten")) {
    CHECK(cudaMemset(memory, 0, kBytes));
    CHECK(cudaMemcpy(memory + 3, other + 2, 64, cudaMemcpyDeviceToDevice));
    read_words<<<1, 32>>>(memory, out, 3);
    read_words<<<1, 32>>>(memory + 19, out, 100);
  } else if (Is(name, "rows_copied")) {
    CHECK(cudaMemset2D(other, 40, 1, 12, 6));
    CHECK(cudaMemcpy2D(memory, 64, other, 40, 12, 6, cudaMemcpyDeviceToDevice));
    for (int row = 0; row < 6; row++) read_words<<<1, 32>>>(memory + row * 16, out, 3);
  } else if (Is(name, "kernel_writes")) {
    write_words<<<1, 32>>>(memory, kWords);
    read_words<<<1, 32>>>(memory, out, kWords);
  } else if (Is(name, "kernel_writes_less_wrong")) {
    write_words<<<1, 32>>>(memory, kWords - 1);
    read_words<<<1, 32>>>(memory, out, kWords);
  } else if (Is(name, "vectors")) {
    write_vectors<<<1, 32>>>(reinterpret_cast<uint4*>(memory));
    read_words<<<1, 32>>>(memory, out, 128);
  } else if (Is(name, "atomic_wrong")) {
    add<<<1, 32>>>(memory);
  } else if (Is(name, "atomic")) {
    CHECK(cudaMemset(memory, 0, kBytes));
    add<<<1, 32>>>(memory);
    read_words<<<1, 32>>>(memory, out, 32);
  } else if (Is(name, "sum_wrong")) {
    CHECK(cudaMemset(memory, 0, 40));
    sum<<<1, 1>>>(reinterpret_cast<float*>(memory), reinterpret_cast<float*>(out), 11);
  } else if (Is(name, "sum")) {
    CHECK(cudaMemset(memory, 0, 40));
    sum<<<1, 1>>>(reinterpret_cast<float*>(memory), reinterpret_cast<float*>(out), 10);
  } else if (Is(name, "read_but_not_used")) {
    CHECK(cudaMemset(memory, 0, 40));
    guarded<<<1, 32>>>(memory, out, 10);
  } else if (Is(name, "tail_of_mask")) {
    CHECK(cudaMemset(memory, 0xff, 2));
    tail_of_mask<<<1, 1>>>(memory, out);
  } else if (Is(name, "managed")) {
    unsigned* managed;
    CHECK(cudaMallocManaged(&managed, kBytes));
    for (int i = 0; i < kWords; i++) managed[i] = i;
    read_words<<<1, 32>>>(managed, out, kWords);
  } else if (Is(name, "stream_ordered_wrong") || Is(name, "stream_ordered")) {
    unsigned* block;
    CHECK(cudaMallocAsync(&block, kBytes, stream));
    if (Is(name, "stream_ordered")) CHECK(cudaMemsetAsync(block, 0, kBytes, stream));
    read_words<<<1, 32, 0, stream>>>(block, out, kWords);
    CHECK(cudaFreeAsync(block, stream));
  } else if (Is(name, "taken_again_wrong")) {
    CHECK(cudaMemset(memory, 0, kBytes));
    CHECK(cudaFree(memory));
    CHECK(cudaMalloc(&memory, kBytes));
    read_words<<<1, 32>>>(memory, out, 1);
  } else {
    std::printf("no case %s\n", name);
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
