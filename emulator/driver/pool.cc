// Stream-ordered allocation. Freed blocks go to their pool's cache, still mapped, and are used
// again for requests of the same size; synchronising gives back what exceeds the pool's release
// threshold. So a use after cuMemFreeAsync that a GPU does not notice is not noticed here either.
#include <algorithm>

#include "emulator/driver/memory.h"

namespace ops_debug::emulator {

void ReturnToPool(Device& device, std::map<uint64_t, Allocation>::iterator allocation) {
  const Allocation& record = allocation->second;
  CUmemPoolHandle_st& pool = *record.pool;
  pool.used_bytes -= record.size_bytes;
  pool.cached_bytes += record.size_bytes;
  pool.cached.emplace(record.size_bytes, allocation->first);
  device.allocations.erase(allocation);
}

namespace {

CUresult Allocate(CUdeviceptr* result, size_t bytes, CUmemoryPool handle, CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS) return status;
    CUmemPoolHandle_st* pool = handle != nullptr ? device.pools.Find(handle) : device.current_pool;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Allocation record{.kind = AllocationKind::kPool,
                            .size_bytes = bytes,
                            .id = device.next_id++,
                            .context = &context,
                            .pool = pool};
    const auto cached = pool->cached.find(bytes);
    if (cached != pool->cached.end()) {
      *result = cached->second;
      pool->cached.erase(cached);
      pool->cached_bytes -= bytes;
      device.allocations[*result] = record;
    } else {
      *result = AllocateMemory(device, context, bytes, record);
      if (*result == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->used_bytes += bytes;
    pool->used_high_bytes = std::max(pool->used_high_bytes, pool->used_bytes);
    pool->reserved_high_bytes =
        std::max(pool->reserved_high_bytes, pool->used_bytes + pool->cached_bytes);
    return CUDA_SUCCESS;
  });
}

// body(Device&, CUmemPoolHandle_st&) for a live pool.
template <class Body>
CUresult WithPool(CUmemoryPool handle, Body body) {
  return OnDevice([&](Device& device) -> CUresult {
    CUmemPoolHandle_st* pool = device.pools.Find(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(device, *pool);
  });
}

CUresult GivePool(CUmemoryPool* result, CUdevice ordinal, bool current) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
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

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS || address == 0) return status;
    const auto found = device.allocations.find(address);
    if (found == device.allocations.end() || found->second.kind != AllocationKind::kPool) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ReturnToPool(device, found);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* result, CUdevice ordinal) {
  return GivePool(result, ordinal, /*current=*/false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* result, CUdevice ordinal) {
  return GivePool(result, ordinal, /*current=*/true);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return WithPool(handle, [](Device& device, CUmemPoolHandle_st& pool) {
    device.current_pool = &pool;
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
  return OnDevice([&](Device& device) -> CUresult {
    if (result == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    *result = device.pools.Add(std::make_unique<CUmemPoolHandle_st>());
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return WithPool(handle, [](Device& device, CUmemPoolHandle_st& pool) -> CUresult {
    if (pool.is_default) return CUDA_ERROR_INVALID_VALUE;
    if (device.current_pool == &pool) device.current_pool = device.default_pool;
    for (const auto& [bytes, address] : pool.cached) device.memory.Free(address);
    // Live allocations stay until they are freed; from now on they belong to the default pool.
    for (auto& [address, allocation] : device.allocations) {
      if (allocation.pool != &pool) continue;
      allocation.pool = device.default_pool;
      device.default_pool->used_bytes += allocation.size_bytes;
    }
    device.pools.Remove(&pool);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  return WithPool(handle, [&](Device& device, CUmemPoolHandle_st& pool) {
    while (!pool.cached.empty() && pool.used_bytes + pool.cached_bytes > keep_bytes) {
      const auto largest = std::prev(pool.cached.end());
      device.memory.Free(largest->second);
      pool.cached_bytes -= largest->first;
      pool.cached.erase(largest);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return WithPool(handle, [&](Device&, CUmemPoolHandle_st& pool) -> CUresult {
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
  return WithPool(handle, [&](Device&, CUmemPoolHandle_st& pool) -> CUresult {
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

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc*, size_t) {
  return WithPool(handle, [](Device&, CUmemPoolHandle_st&) { return CUDA_SUCCESS; });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation*) {
  return WithPool(handle, [&](Device&, CUmemPoolHandle_st&) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemAllocAsync, ptsz)
OPS_DEBUG_PER_THREAD(cuMemAllocFromPoolAsync, ptsz)
OPS_DEBUG_PER_THREAD(cuMemFreeAsync, ptsz)
