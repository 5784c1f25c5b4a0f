// Stream-ordered allocation. A block is freed when its stream gets there; it then goes to its
// pool's cache, still mapped, and is used again for requests of the same size; what comes later in
// the same stream may have it even before. Synchronising gives back what exceeds the pool's release
// threshold. So a use after cuMemFreeAsync that a GPU does not notice is not noticed here either.
#include <algorithm>
#include <optional>
#include <span>

#include "emulator/driver/capture.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/operation.h"

namespace ops_debug::emulator {
namespace {

// Gives `bytes` or more of the cache back, the largest blocks first, as long as `exceeds()`.
template <class Exceeds>
void TrimWhile(CUmemPoolHandle_st& pool, Exceeds exceeds) {
  while (!pool.cached.empty() && exceeds()) {
    const auto largest = std::prev(pool.cached.end());
    for (const int ordinal : pool.accessible_from) {
      Device* other = pool.device->driver.FindDevice(ordinal);
      if (other != nullptr) other->memory.UnregisterHostRange(largest->second);
    }
    pool.device->memory.Free(largest->second);
    pool.cached_bytes -= largest->first;
    pool.cached.erase(largest);
  }
}

// A block of the pool that may be used again in `order`; 0 if there is none.
uint64_t TakeFreed(Driver& driver, CUmemPoolHandle_st& pool, const StreamOrder* order,
                   size_t bytes) {
  const auto cached = pool.cached.find(bytes);
  if (cached != pool.cached.end()) {
    const uint64_t address = cached->second;
    pool.cached.erase(cached);
    pool.cached_bytes -= bytes;
    return address;
  }
  const auto pending =
      std::find_if(pool.pending_frees.begin(), pool.pending_frees.end(), [&](const auto& free) {
        return free.order == order && driver.allocations.at(free.address).size_bytes == bytes;
      });
  if (pending == pool.pending_frees.end()) return 0;
  const uint64_t address = pending->address;
  pool.pending_frees.erase(pending);
  pool.cached_bytes -= bytes;
  return address;
}

CUresult Allocate(CUdeviceptr* result, size_t bytes, CUmemoryPool handle, CUstream stream_handle) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    Driver& driver = device.driver;
    const CUstream_st* stream = FindStream(driver, context, stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUmemPoolHandle_st* pool =
        handle != nullptr ? driver.pools.Find(handle) : stream->context->device->current_pool;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Allocation record{.kind = AllocationKind::kPool,
                      .size_bytes = bytes,
                      .id = driver.next_id++,
                      .context = &context,
                      .pool = pool};
    uint64_t address = TakeFreed(driver, *pool, stream->order.get(), bytes);
    if (address != 0) {
      driver.allocations[address] = record;
    } else {
      address = AllocateMemory(*pool->device, context, bytes, record);
      if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
      for (const int ordinal : pool->accessible_from) {
        driver.FindDevice(ordinal)->memory.RegisterHostRange(address, bytes);
      }
    }
    pool->used_bytes += bytes;
    pool->used_high_bytes = std::max(pool->used_high_bytes, pool->used_bytes);
    pool->reserved_high_bytes =
        std::max(pool->reserved_high_bytes, pool->used_bytes + pool->cached_bytes);
    const CUresult status =
        Submit(device, context, stream_handle,
               {.work = AllocateOperation{.address = address, .size_bytes = bytes, .pool = pool}});
    if (status == CUDA_SUCCESS) {
      *result = address;
    } else {
      ReturnToPool(driver, driver.allocations.find(address));
    }
    return status;
  });
}

CUresult Free(CUdeviceptr address, CUstream stream_handle) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    Driver& driver = device.driver;
    const CUstream_st* stream = FindStream(driver, context, stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (address == 0) return CUDA_SUCCESS;
    const auto found = driver.allocations.find(address);
    if (const auto of_graph = FindGraphMemory(address)) {
      Operation free;
      if (IsCapturing(*stream)) {
        free.work = FreeOperation{.address = address};
      } else {
        free.work = FreeWork(of_graph);
      }
      return Submit(device, context, stream_handle, std::move(free));
    }
    if (found == driver.allocations.end() || found->second.is_freed) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Allocation& allocation = found->second;
    if (allocation.kind != AllocationKind::kPool) return CUDA_ERROR_INVALID_VALUE;
    StreamPoint behind;
    const CUresult status = Submit(device, context, stream_handle,
                                   {.work = FreeOperation{.address = address,
                                                          .id = allocation.id,
                                                          .size_bytes = allocation.size_bytes}},
                                   &behind);
    if (status != CUDA_SUCCESS || behind.order == nullptr) return status;
    // Counted as unused from now on, like NVIDIA's driver does.
    allocation.is_freed = true;
    CUmemPoolHandle_st& pool = *allocation.pool;
    pool.used_bytes -= allocation.size_bytes;
    pool.cached_bytes += allocation.size_bytes;
    pool.pending_frees.push_back({stream->order.get(), address});
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUmemPoolHandle_st* AddPool(Driver& driver, Device& device) {
  auto pool = std::make_unique<CUmemPoolHandle_st>();
  pool->device = &device;
  return driver.pools.Add(std::move(pool));
}

void ReturnToPool(Driver& driver, std::map<uint64_t, Allocation>::iterator allocation) {
  const Allocation& record = allocation->second;
  CUmemPoolHandle_st& pool = *record.pool;
  if (!record.is_freed) {
    pool.used_bytes -= record.size_bytes;
    pool.cached_bytes += record.size_bytes;
  }
  pool.cached.emplace(record.size_bytes, allocation->first);
  driver.allocations.erase(allocation);
}

void FinishStreamFree(Driver& driver, uint64_t address, uint64_t id) {
  const auto found = driver.allocations.find(address);
  // The same stream may have taken it again.
  if (found == driver.allocations.end() || found->second.id != id) return;
  if (found->second.kind != AllocationKind::kPool) {
    ReleaseAllocation(driver, found);
    return;
  }
  std::erase_if(found->second.pool->pending_frees,
                [&](const auto& free) { return free.address == address; });
  ReturnToPool(driver, found);
}

void FinishWait(Device& device) {
  device.driver.pools.ForEach([&](CUmemPoolHandle_st& pool) {
    if (pool.device != &device) return;
    TrimWhile(pool, [&] { return pool.cached_bytes > pool.release_threshold_bytes; });
  });
}

namespace {

// body(CUmemPoolHandle_st&) for a live pool.
template <class Body>
CUresult WithPool(CUmemoryPool handle, Body body) {
  return InDriver([&](Driver& driver) -> CUresult {
    CUmemPoolHandle_st* pool = driver.pools.Find(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(*pool);
  });
}

CUresult GivePool(CUmemoryPool* result, CUdevice ordinal, bool current) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = current ? device.current_pool : device.default_pool;
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* result, size_t bytes, CUstream stream) {
  return Allocate(result, bytes, nullptr, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* result, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(result, bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return Free(address, stream); }

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* result, CUdevice ordinal) {
  return GivePool(result, ordinal, /*current=*/false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* result, CUdevice ordinal) {
  return GivePool(result, ordinal, /*current=*/true);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    CUmemPoolHandle_st* pool = device.driver.pools.Find(handle);
    if (pool == nullptr || pool->device != &device) return CUDA_ERROR_INVALID_VALUE;
    device.current_pool = pool;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* result, CUmemLocation* location,
                                CUmemAllocationType type) {
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return GivePool(result, location->id, /*current=*/false);
}

CUresult cuMemGetMemPool(CUmemoryPool* result, CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return GivePool(result, location->id, /*current=*/true);
}

CUresult cuMemPoolCreate(CUmemoryPool* result, const CUmemPoolProps* properties) {
  return InDriver([&](Driver& driver) -> CUresult {
    if (result == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
      Say("cuMemPoolCreate: pools that other processes can import are not supported");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      Say("cuMemPoolCreate: pools of host memory are not supported");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    Device* device = driver.FindDevice(properties->location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *result = AddPool(driver, *device);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return WithPool(handle, [](CUmemPoolHandle_st& pool) -> CUresult {
    if (pool.is_default) return CUDA_ERROR_INVALID_VALUE;
    Device& device = *pool.device;
    if (device.current_pool == &pool) device.current_pool = device.default_pool;
    TrimWhile(pool, [] { return true; });
    // Live allocations stay until they are freed; from now on they belong to the default pool.
    CUmemPoolHandle_st& heir = *device.default_pool;
    for (auto& [address, allocation] : device.driver.allocations) {
      if (allocation.pool != &pool) continue;
      allocation.pool = &heir;
      (allocation.is_freed ? heir.cached_bytes : heir.used_bytes) += allocation.size_bytes;
    }
    heir.pending_frees.insert(heir.pending_frees.end(), pool.pending_frees.begin(),
                              pool.pending_frees.end());
    device.driver.pools.Remove(&pool);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  return WithPool(handle, [&](CUmemPoolHandle_st& pool) {
    TrimWhile(pool, [&] { return pool.used_bytes + pool.cached_bytes > keep_bytes; });
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return WithPool(handle, [&](CUmemPoolHandle_st& pool) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto give_int = [&](int v) { *static_cast<int*>(value) = v; };
    const auto give_bytes = [&](uint64_t v) { *static_cast<cuuint64_t*>(value) = v; };
    switch (attribute) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        give_int(pool.reuse_follow_event);
        break;
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        give_int(pool.reuse_opportunistic);
        break;
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        give_int(pool.reuse_internal);
        break;
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        give_bytes(pool.release_threshold_bytes);
        break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        give_bytes(pool.used_bytes + pool.cached_bytes);
        break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        give_bytes(pool.reserved_high_bytes);
        break;
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        give_bytes(pool.used_bytes);
        break;
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        give_bytes(pool.used_high_bytes);
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return WithPool(handle, [&](CUmemPoolHandle_st& pool) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        pool.reuse_follow_event = *static_cast<const int*>(value);
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        pool.reuse_opportunistic = *static_cast<const int*>(value);
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool.reuse_internal = *static_cast<const int*>(value);
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool.release_threshold_bytes = *static_cast<const cuuint64_t*>(value);
        return CUDA_SUCCESS;
      // The marks can only be reset.
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
        pool.reserved_high_bytes = pool.used_bytes + pool.cached_bytes;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
        pool.used_high_bytes = pool.used_bytes;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

// The own device always has access; that of the others to the pool's memory can be switched.
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* accesses, size_t count) {
  return WithPool(handle, [&](CUmemPoolHandle_st& pool) -> CUresult {
    if (accesses == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    Driver& driver = pool.device->driver;
    for (const CUmemAccessDesc& access : std::span(accesses, count)) {
      Device* device = driver.FindDevice(access.location.id);
      if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      const bool may = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (device == pool.device) {
        if (!may) return CUDA_ERROR_INVALID_DEVICE;
        continue;
      }
      if (may) {
        pool.accessible_from.insert(access.location.id);
      } else {
        pool.accessible_from.erase(access.location.id);
      }
      const auto apply = [&](uint64_t address, uint64_t bytes) {
        if (may) {
          device->memory.RegisterHostRange(address, bytes);
        } else {
          device->memory.UnregisterHostRange(address);
        }
      };
      for (const auto& [address, allocation] : driver.allocations) {
        if (allocation.pool == &pool) apply(address, allocation.size_bytes);
      }
      for (const auto& [bytes, address] : pool.cached) apply(address, bytes);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return WithPool(handle, [&](CUmemPoolHandle_st& pool) -> CUresult {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !IsDevice(location->id)) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    const bool may =
        location->id == pool.device->ordinal || pool.accessible_from.contains(location->id);
    *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemAllocAsync, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuMemAllocFromPoolAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemFreeAsync, ptsz, 2)
