// Every block takes a ticket from a counter and enters its own number at that place: a queue.
//
// Planted fault: the counter is read and written back in two steps, so two blocks may get the same
// ticket. With -DFIXED it is one atomicAdd. Blocks rarely meet in these few instructions.
//
//   nvcc -cudart shared -lineinfo -gencode arch=compute_90,code=compute_90 -o ticket examples/ticket.cu
//   ops-debug run --schedules 200 -- ./ticket
//
// Exits with 1 if a block is missing in the queue.
#include <cstdio>

constexpr int kBlocks = 8;

__device__ int next_ticket;

__device__ int take_ticket() {
#ifdef FIXED
  return atomicAdd(&next_ticket, 1);
#else
  const int ticket = next_ticket;
  next_ticket = ticket + 1;
  return ticket;
#endif
}

__global__ void enqueue(int* queue) {
  if (threadIdx.x == 0) queue[take_ticket()] = static_cast<int>(blockIdx.x) + 1;
}

int main() {
  int* queue = nullptr;
  int host[kBlocks] = {};
  cudaMalloc(&queue, sizeof(host));
  cudaMemset(queue, 0, sizeof(host));
  enqueue<<<kBlocks, 32>>>(queue);
  const cudaError_t status = cudaMemcpy(host, queue, sizeof(host), cudaMemcpyDeviceToHost);
  cudaFree(queue);
  if (status != cudaSuccess) {
    std::printf("failed: %s\n", cudaGetErrorString(status));
    return 1;
  }
  int missing = 0;
  for (int block = 1; block <= kBlocks; ++block) {
    bool found = false;
    for (const int entry : host) found = found || entry == block;
    if (!found) ++missing;
  }
  std::printf("%d blocks missing in the queue\n", missing);
  return missing == 0 ? 0 : 1;
}
