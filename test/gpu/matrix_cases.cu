// Matrix loads and stores through shared memory, for the GPU run only (the emulator has no ldmatrix yet):
// `matrix_cases load|store wrong|right`. The wrong ones name rows behind the end of the array.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void load_tiles(unsigned* out, int first_row) {
  __shared__ __align__(16) unsigned rows[32][4];
  for (int i = 0; i < 4; i++) rows[threadIdx.x][i] = threadIdx.x * 4 + i;
  __syncwarp();
  const unsigned address = unsigned(__cvta_generic_to_shared(rows)) + (first_row + threadIdx.x) * 16;
  unsigned a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address));
  // Only the first eight lanes of an x1 load give addresses: those of the others may be anything.
  unsigned e;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(e)
               : "r"(threadIdx.x < 8 ? address - first_row * 16 : 0xffffff00u));
  out[threadIdx.x] = a + b + c + d + e;
}

__global__ void store_tiles(unsigned* out, int first_row) {
  __shared__ __align__(16) unsigned rows[8][4];
  const unsigned address = unsigned(__cvta_generic_to_shared(rows)) + (first_row + threadIdx.x % 8) * 16;
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(threadIdx.x));
  __syncwarp();
  out[threadIdx.x] = rows[threadIdx.x / 4][threadIdx.x % 4];
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int first_row = std::strcmp(argv[2], "wrong") == 0 ? 2 : 0;
  unsigned* out;
  cudaMalloc(&out, 32 * sizeof(unsigned));
  if (std::strcmp(argv[1], "load") == 0) {
    load_tiles<<<1, 32>>>(out, first_row);
  } else {
    store_tiles<<<1, 32>>>(out, first_row);
  }
  unsigned host[32], sum = 0;
  cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
  for (unsigned value : host) sum += value;
  std::printf("%u %s\n", first_row == 0 ? sum : 0, cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
