// Occupancy: how many blocks a multiprocessor holds, and the questions that programs build on it.
// The rules are those of NVIDIA's occupancy calculator (Nsight Compute documentation, "Occupancy
// Calculator"): registers are given to warps in units and lie in one of the multiprocessor's four
// parts; shared memory is given to blocks in units, with a part reserved for the system.
#include <algorithm>

#include "emulator/driver/function.h"
#include "emulator/driver/limits.h"
#include "emulator/driver/models.h"
#include "emulator/driver/module.h"

namespace ops_debug::emulator {
namespace {

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

int SharedBytesOfBlock(const KernelAttributes& attributes, size_t dynamic_bytes) {
  const int bytes = int(attributes.static_shared_bytes + dynamic_bytes);
  return RoundUp(bytes + kReservedSharedBytesPerBlock, kSharedAllocationUnitBytes);
}

// What the multiprocessor gives to shared memory if blocks need `block_bytes` each: all of it
// unless the function prefers a share, in percent; then the smallest split that grants it and a
// block.
int SharedCapacity(const DeviceModel& model, int preferred_percent, int block_bytes) {
  const int most = int(model.shared_bytes_per_multiprocessor);
  if (preferred_percent < 0) return most;
  const int wanted = std::max(int(int64_t{most} * preferred_percent / 100), block_bytes);
  for (const uint32_t carveout : SharedCarveouts(model)) {
    if (int(carveout) >= wanted) return int(carveout);
  }
  return most;
}

int Resident(const DeviceModel& model, const KernelAttributes& attributes, int preferred_percent,
             int block_threads, size_t dynamic_bytes) {
  if (block_threads <= 0 || block_threads > int(attributes.max_threads_per_block)) return 0;
  if (attributes.static_shared_bytes + dynamic_bytes > model.shared_bytes_per_block_optin) return 0;
  const int warps = (block_threads + kWarpSize - 1) / kWarpSize;
  const int registers_of_warp =
      RoundUp(int(std::max(1u, attributes.registers)) * kWarpSize, kRegisterAllocationUnit);
  const int registers_of_part = int(model.registers_per_multiprocessor) / kMultiprocessorParts;
  const int by_threads = int(model.threads_per_multiprocessor) / kWarpSize / warps;
  const int by_registers = registers_of_part / registers_of_warp * kMultiprocessorParts / warps;
  const int shared_of_block = SharedBytesOfBlock(attributes, dynamic_bytes);
  const int by_shared = SharedCapacity(model, preferred_percent, shared_of_block) / shared_of_block;
  return std::min({int(model.blocks_per_multiprocessor), by_threads, by_registers, by_shared});
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

// The block size that keeps most threads resident; the larger one of equals. `bytes_of_block` is
// the program's and is called without the driver's lock.
CUresult MaxPotentialBlockSize(int* min_grid, int* block, CUfunction handle,
                               CUoccupancyB2DSize bytes_of_block, size_t dynamic_bytes, int limit) {
  DeviceModel model;
  KernelAttributes attributes;
  int preferred_percent = -1;
  const CUresult status = WithFunction(handle, [&](Device& device, CUfunc_st& function) {
    model = device.model;
    attributes = Attributes(function);
    preferred_percent = function.preferred_shared_carveout;
    return CUDA_SUCCESS;
  });
  if (status != CUDA_SUCCESS) return status;
  if (min_grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int largest = int(attributes.max_threads_per_block);
  if (limit > 0) largest = std::min(largest, limit);
  int best_threads = 0, best_block = 0, best_resident = 0;
  for (int threads = RoundUp(largest, kWarpSize); threads > 0; threads -= kWarpSize) {
    const int size = std::min(threads, largest);
    const size_t bytes = bytes_of_block != nullptr ? bytes_of_block(size) : dynamic_bytes;
    const int resident = Resident(model, attributes, preferred_percent, size, bytes);
    if (resident * size <= best_threads) continue;
    best_threads = resident * size;
    best_block = size;
    best_resident = resident;
  }
  *block = best_block;
  *min_grid = best_resident * int(model.multiprocessors);
  return CUDA_SUCCESS;
}

}  // namespace

int ResidentBlocks(const DeviceModel& model, const CUfunc_st& function, int block_threads,
                   size_t dynamic_shared_bytes) {
  return Resident(model, Attributes(function), function.preferred_shared_carveout, block_threads,
                  dynamic_shared_bytes);
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
    const int share = int(device.model.shared_bytes_per_multiprocessor) / blocks /
                          kSharedAllocationUnitBytes * kSharedAllocationUnitBytes -
                      kReservedSharedBytesPerBlock - int(Attributes(function).static_shared_bytes);
    *bytes = size_t(std::clamp(share, 0, int(device.model.shared_bytes_per_block_optin)));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
