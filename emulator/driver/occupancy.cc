// Occupancy: how many blocks a multiprocessor holds, and the questions that programs build on it.
#include <algorithm>

#include "emulator/driver/function.h"
#include "emulator/driver/limits.h"
#include "emulator/driver/module.h"

namespace ops_debug::emulator {
namespace {

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

int SharedBytesOfBlock(const CUfunc_st& function, size_t dynamic_bytes) {
  const int bytes = int(Attributes(function).static_shared_bytes + dynamic_bytes);
  return RoundUp(bytes, kSharedAllocationUnitBytes) + kReservedSharedBytesPerBlock;
}

template <class Body>
CUresult WithFunction(CUfunction handle, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUfunc_st* function = nullptr;
    const CUresult status = ResolveFunction(device, context, handle, &function);
    if (status != CUDA_SUCCESS) return status;
    return body(device, *function);
  });
}

CUresult MaxActiveBlocks(int* blocks, CUfunction handle, int block_threads, size_t dynamic_bytes) {
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) -> CUresult {
    if (blocks == nullptr || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = ResidentBlocks(device.model, function, block_threads, dynamic_bytes);
    return CUDA_SUCCESS;
  });
}

// The block size that keeps most threads resident; the larger one of equals.
CUresult MaxPotentialBlockSize(int* min_grid, int* block, CUfunction handle,
                               CUoccupancyB2DSize bytes_of_block, size_t dynamic_bytes, int limit) {
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) -> CUresult {
    if (min_grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    int largest = int(Attributes(function).max_threads_per_block);
    if (limit > 0) largest = std::min(largest, limit);
    int best_threads = 0, best_block = 0, best_resident = 0;
    for (int threads = RoundUp(largest, kWarpSize); threads > 0; threads -= kWarpSize) {
      const int size = std::min(threads, largest);
      const size_t bytes = bytes_of_block != nullptr ? bytes_of_block(size) : dynamic_bytes;
      const int resident = ResidentBlocks(device.model, function, size, bytes);
      if (resident * size <= best_threads) continue;
      best_threads = resident * size;
      best_block = size;
      best_resident = resident;
    }
    *block = best_block;
    *min_grid = best_resident * int(device.model.multiprocessors);
    return CUDA_SUCCESS;
  });
}

}  // namespace

int ResidentBlocks(const DeviceModel& model, const CUfunc_st& function, int block_threads,
                   size_t dynamic_shared_bytes) {
  const KernelAttributes& attributes = Attributes(function);
  if (block_threads <= 0 || block_threads > int(attributes.max_threads_per_block)) return 0;
  const size_t shared = attributes.static_shared_bytes + dynamic_shared_bytes;
  if (shared > model.shared_bytes_per_block_optin) return 0;
  const int warps = (block_threads + kWarpSize - 1) / kWarpSize;
  const int registers_of_warp =
      RoundUp(int(std::max(1u, attributes.registers)) * kWarpSize, kRegisterAllocationUnit);
  const int by_threads = kMaxThreadsPerMultiprocessor / kWarpSize / warps;
  const int by_registers = kRegistersPerMultiprocessor / registers_of_warp / warps;
  const int by_shared =
      int(SharedBytesPerMultiprocessor(model)) / SharedBytesOfBlock(function, dynamic_shared_bytes);
  return std::min({kMaxBlocksPerMultiprocessor, by_threads, by_registers, by_shared});
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int block_threads, size_t dynamic_bytes) {
  return MaxActiveBlocks(blocks, function, block_threads, dynamic_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t dynamic_bytes, unsigned int) {
  return MaxActiveBlocks(blocks, function, block_threads, dynamic_bytes);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize bytes_of_block, size_t dynamic_bytes,
                                          int limit) {
  return MaxPotentialBlockSize(min_grid, block, function, bytes_of_block, dynamic_bytes, limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize bytes_of_block,
                                                   size_t dynamic_bytes, int limit, unsigned int) {
  return MaxPotentialBlockSize(min_grid, block, function, bytes_of_block, dynamic_bytes, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                 int block_threads) {
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) -> CUresult {
    if (bytes == nullptr || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (ResidentBlocks(device.model, function, block_threads, 0) < blocks) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int share = int(SharedBytesPerMultiprocessor(device.model)) / blocks /
                          kSharedAllocationUnitBytes * kSharedAllocationUnitBytes -
                      kReservedSharedBytesPerBlock - int(Attributes(function).static_shared_bytes);
    *bytes = size_t(std::clamp(share, 0, int(device.model.shared_bytes_per_block_optin)));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
