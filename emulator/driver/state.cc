// The process's device, the threads' context stacks, and the rules that every call shares.
#include "emulator/driver/state.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace ops_debug::emulator {
namespace {

std::atomic<Device*> the_device{nullptr};

// Gives back what `pool` holds beyond its threshold.
void ReleaseCached(Device& device, CUmemPoolHandle_st& pool) {
  while (pool.cached_bytes > pool.release_threshold_bytes && !pool.cached.empty()) {
    const auto largest = std::prev(pool.cached.end());
    device.memory.Free(largest->second);
    pool.cached_bytes -= largest->first;
    pool.cached.erase(largest);
  }
}

}  // namespace

bool Initialised() { return the_device.load(std::memory_order_acquire) != nullptr; }

Device& ThisDevice() { return *the_device.load(std::memory_order_acquire); }

ContextStackType& ContextStack() {
  constinit thread_local ContextStackType stack;
  return stack;
}

CUctx_st* CurrentContext() {
  ContextStackType& stack = ContextStack();
  return stack.Empty() ? nullptr : ThisDevice().contexts.Find(stack.Top());
}

std::map<uint64_t, Allocation>::iterator Device::FindAllocation(uint64_t address,
                                                                uint64_t size_bytes) {
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return allocations.end();
  --it;
  const uint64_t offset = address - it->first;
  const bool inside =
      offset < it->second.size_bytes && size_bytes <= it->second.size_bytes - offset;
  return inside ? it : allocations.end();
}

CUresult CheckStream(const Device& device, const CUctx_st& context, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return CUDA_SUCCESS;
  }
  const CUstream_st* found = device.streams.Find(stream);
  return found != nullptr && found->context == &context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void FinishWait(Device& device) {
  device.pools.ForEach([&](CUmemPoolHandle_st& pool) { ReleaseCached(device, pool); });
}

}  // namespace ops_debug::emulator

using ops_debug::emulator::Device;

extern "C" CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return ops_debug::emulator::Guarded([]() -> CUresult {
    static std::mutex& mutex = *new std::mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (ops_debug::emulator::Initialised()) return CUDA_SUCCESS;
    auto device = std::make_unique<Device>();
    if (device->memory.arena_base() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    // The host's memory is the device's; half of it, so that the program itself still fits.
    const uint64_t host_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    device->total_memory_bytes =
        std::min<uint64_t>(host_bytes / 2, ops_debug::emulator::DeviceMemory::kArenaBytes / 2);
    auto pool = std::make_unique<CUmemPoolHandle_st>();
    pool->is_default = true;
    device->default_pool = device->pools.Add(std::move(pool));
    device->current_pool = device->default_pool;
    ops_debug::emulator::the_device.store(device.release(), std::memory_order_release);
    return CUDA_SUCCESS;
  });
}

extern "C" CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
