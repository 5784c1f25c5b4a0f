// Faults that people met in operator libraries, rebuilt small, each with its right twin: `cases NAME wrong|right`.
// The host side checks nothing on purpose: what matters is what a checker says.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

struct Mapping {
  int source;
  float weight;
};

// The scratch buffer is sized for two axes, the kernel fills three.
__global__ void resize_mapping(Mapping* map, int total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < total) map[i] = {i / 2, 0.5f};
}
static void mapping(bool wrong) {
  const int depth = 8, height = 100, width = 150;
  Mapping* map;
  cudaMalloc(&map, ((wrong ? 0 : depth) + height + width) * sizeof(Mapping));
  resize_mapping<<<2, 256>>>(map, depth + height + width);
}

// A per-thread array of 16 with a run-time k.
__global__ void top_k(const float* scores, float* out, int k, int stride) {
  float best[16];
  int order[16];
  for (int j = 0; j < 16; j++) order[j] = 15 - j;
  float sum = 0;
  for (int j = 0; j < k; j++) sum += best[j] = scores[j * stride + threadIdx.x];
  for (int j = 0; j < k && j < 16; j++) out[j * stride + threadIdx.x] = best[order[j]] / sum;
}
static void local_array(bool wrong) {
  float *scores, *out;
  cudaMalloc(&scores, 64 * 32 * sizeof(float));
  cudaMalloc(&out, 64 * 32 * sizeof(float));
  top_k<<<1, 32>>>(scores, out, wrong ? 17 : 16, 32);
}

// 16-byte copies whose destination rows are 92 bytes apart.
__global__ void copy_rows(const uint4* in, char* out, int pitch, int vectors) {
  if (threadIdx.x < vectors) *(uint4*)(out + blockIdx.x * pitch + threadIdx.x * 16) = in[threadIdx.x];
}
static void row_pitch(bool wrong) {
  uint4* in;
  char* out;
  cudaMalloc(&in, 5 * 16);
  cudaMalloc(&out, 64 * 96);
  copy_rows<<<64, 32>>>(in, out, wrong ? 92 : 96, 5);
}

// The host asks for fewer bytes of dynamic shared memory than the device's alignment of the second part needs.
__global__ void two_parts(float* out, int first_bytes) {
  extern __shared__ __align__(128) char memory[];
  float* second = (float*)(memory + (first_bytes + 127) / 128 * 128);
  second[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = second[31 - threadIdx.x];
}
static void dynamic_shared(bool wrong) {
  const int first_bytes = 200;
  float* out;
  cudaMalloc(&out, 32 * sizeof(float));
  two_parts<<<1, 32, (wrong ? first_bytes : 256) + 32 * sizeof(float)>>>(out, first_bytes);
}

// Interpolation corners outside the image have index -1; the backward pass adds there without asking.
__global__ void scatter_gradient(float* gradient, int width, bool check) {
  const int row = int(threadIdx.x) - 1;
  if (!check || row >= 0) atomicAdd(&gradient[row * width], 1.f);
}
static void sentinel(bool wrong) {
  float* gradient;
  cudaMalloc(&gradient, 16 * 64 * sizeof(float));
  scatter_gradient<<<1, 17>>>(gradient, 64, !wrong);
}

// Lanes beyond the end are switched off: right code, although they compute addresses far outside. The wrong one loads
// first and selects afterwards.
__global__ void masked(const float* in, float* out, int n, bool select) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value;
  if (select) {
    value = ((const volatile float*)in)[i];
    value = i < n ? value : 0;
  } else {
    value = i < n ? in[i] : 0;
  }
  if (i < n) out[i] = value;
}
static void masked_lanes(bool wrong) {
  float *in, *out;
  cudaMalloc(&in, 1000 * sizeof(float));
  cudaMalloc(&out, 1000 * sizeof(float));
  masked<<<4, 256>>>(in, out, 1000, wrong);
}

// A table of pointers in device memory, one of them freed.
__global__ void gather_rows(float* const* rows, float* out, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = rows[blockIdx.x][threadIdx.x];
}
static void pointer_table(bool wrong) {
  float *rows[2], **table, *out;
  for (float*& row : rows) cudaMalloc(&row, 50 * sizeof(float));
  cudaMalloc(&table, sizeof(rows));
  cudaMalloc(&out, 50 * sizeof(float));
  cudaMemcpy(table, rows, sizeof(rows), cudaMemcpyHostToDevice);
  if (wrong) cudaFree(rows[1]);
  gather_rows<<<2, 64>>>(table, out, 50);
}

// Asynchronous copies of 16 bytes; the last one of the row may be shorter, and says so by its source size.
__global__ void async_tiles(const float* in, float* out, int n, bool check) {
  __shared__ __align__(16) float tile[128];
  const int first = threadIdx.x * 4, left = n - first;
  const int bytes = !check || left >= 4 ? 16 : left > 0 ? left * 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(tile + first))),
               "l"(in + first), "r"(bytes));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
static void async_copy(bool wrong) {
  float *in, *out;
  cudaMalloc(&in, 102 * sizeof(float));
  cudaMalloc(&out, 32 * sizeof(float));
  async_tiles<<<1, 32>>>(in, out, 102, !wrong);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool wrong = std::strcmp(argv[2], "wrong") == 0;
  const struct {
    const char* name;
    void (*run)(bool);
  } cases[] = {{"mapping", mapping},         {"local_array", local_array}, {"row_pitch", row_pitch},
               {"dynamic_shared", dynamic_shared}, {"sentinel", sentinel},       {"masked_lanes", masked_lanes},
               {"pointer_table", pointer_table}, {"async_copy", async_copy}};
  for (const auto& known : cases) {
    if (std::strcmp(known.name, argv[1]) == 0) known.run(wrong);
  }
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
