// Thread number in the grid, which orders the threads that break a rule: the lowest is reported.
#pragma once

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): device code

// Blocks of one grid number at most 2^31 * 2^16 * 2^16, so the product with 1024 may wrap for
// absurd grids: the order is then arbitrary, nothing else.
static __device__ uint64_t LinearThread() {
  const uint64_t block =
      blockIdx.x + static_cast<uint64_t>(gridDim.x) *
                       (blockIdx.y + static_cast<uint64_t>(gridDim.y) * blockIdx.z);
  return block * 1024 + threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
