// Allocation: device, pitched, managed, pinned and registered memory. All of it is host memory at
// its own address, so a device pointer is valid on the host; what distinguishes the kinds is what
// queries answer and how they are freed.
#include "emulator/driver/memory.h"

namespace ops_debug::emulator {

uint64_t AllocateMemory(Device& device, CUctx_st& context, uint64_t size_bytes, Allocation record) {
  const uint64_t in_use = device.memory.allocated_bytes();
  if (size_bytes > device.total_memory_bytes || in_use > device.total_memory_bytes - size_bytes) {
    return 0;
  }
  const uint64_t address = device.memory.Allocate(size_bytes);
  if (address == 0) return 0;
  record.size_bytes = size_bytes;
  record.id = device.next_id++;
  record.context = &context;
  device.allocations[address] = record;
  return address;
}

bool IsDeviceRange(const Device& device, uint64_t address, uint64_t size_bytes) {
  uint64_t base = 0, bytes = 0;
  if (device.memory.Find(address, &base, &bytes)) {
    const uint64_t offset = address - base;
    return offset <= bytes && size_bytes <= bytes - offset;
  }
  return const_cast<Device&>(device).FindAllocation(address, size_bytes) !=
         const_cast<Device&>(device).allocations.end();
}

bool IsUnifiedRange(const Device& device, uint64_t address, uint64_t size_bytes) {
  const uint64_t arena = device.memory.arena_base();
  const bool in_arena = address >= arena && address - arena < DeviceMemory::kArenaBytes;
  return !in_arena || IsDeviceRange(device, address, size_bytes);
}

namespace {

constexpr uint64_t kPitchAlignment = 512;

CUresult Allocate(CUdeviceptr* result, size_t bytes, Allocation record) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *result = AllocateMemory(device, context, bytes, record);
    return *result != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult AllocateHost(void** result, size_t bytes, unsigned flags) {
  CUdeviceptr address = 0;
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult status =
      Allocate(&address, bytes, {.kind = AllocationKind::kPinnedHost, .host_flags = flags});
  if (status == CUDA_SUCCESS) *result = reinterpret_cast<void*>(address);
  return status;
}

// The allocation that `pointer` lies in, if the host may hold such a pointer.
std::map<uint64_t, Allocation>::iterator FindHost(Device& device, const void* pointer) {
  const auto found = device.FindAllocation(reinterpret_cast<uint64_t>(pointer), 1);
  const bool is_host =
      found != device.allocations.end() && (found->second.kind == AllocationKind::kPinnedHost ||
                                            found->second.kind == AllocationKind::kRegisteredHost);
  return is_host ? found : device.allocations.end();
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* result, size_t bytes) {
  return Allocate(result, bytes, {.kind = AllocationKind::kDevice});
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* result, size_t* pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes) {
  if (pitch == nullptr || height == 0 || width_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t rounded = (width_bytes + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  size_t bytes = 0;
  if (rounded < width_bytes || __builtin_mul_overflow(rounded, height, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult status = Allocate(result, bytes, {.kind = AllocationKind::kDevice});
  if (status == CUDA_SUCCESS) *pitch = rounded;
  return status;
}

CUresult cuMemAllocManaged(CUdeviceptr* result, size_t bytes, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(result, bytes, {.kind = AllocationKind::kManaged});
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (address == 0) return CUDA_SUCCESS;
    const auto found = device.allocations.find(address);
    if (found == device.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    switch (found->second.kind) {
      case AllocationKind::kPinnedHost:
      case AllocationKind::kRegisteredHost:
        return CUDA_ERROR_INVALID_VALUE;
      case AllocationKind::kPool:
        ReturnToPool(device, found);
        break;
      case AllocationKind::kDevice:
      case AllocationKind::kManaged:
        device.memory.Free(address);
        device.allocations.erase(found);
        break;
    }
    FinishWait(device);  // freeing waits for the device
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t used = device.memory.allocated_bytes();
    *total_bytes = device.total_memory_bytes;
    *free_bytes = used < device.total_memory_bytes ? device.total_memory_bytes - used : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    uint64_t found_base = 0, found_bytes = 0;
    if (!device.memory.Find(address, &found_base, &found_bytes)) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = found_base;
    if (bytes != nullptr) *bytes = found_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostAlloc(void** result, size_t bytes, unsigned int flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return AllocateHost(result, bytes, flags);
}

CUresult cuMemAllocHost_v2(void** result, size_t bytes) {
  return AllocateHost(result, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void* pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (pointer == nullptr) return CUDA_SUCCESS;
    const auto found = device.allocations.find(reinterpret_cast<uint64_t>(pointer));
    if (found == device.allocations.end() || found->second.kind != AllocationKind::kPinnedHost) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    device.memory.Free(found->first);
    device.allocations.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const auto next = device.allocations.upper_bound(address);
    const bool overlaps_next = next != device.allocations.end() && next->first - address < bytes;
    if (overlaps_next || device.FindAllocation(address, 1) != device.allocations.end()) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    device.memory.RegisterHostRange(address, bytes);
    device.allocations[address] = {.kind = AllocationKind::kRegisteredHost,
                                   .size_bytes = bytes,
                                   .id = device.next_id++,
                                   .context = &context,
                                   .host_flags = flags};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const auto found = device.allocations.find(reinterpret_cast<uint64_t>(pointer));
    if (found == device.allocations.end() ||
        found->second.kind != AllocationKind::kRegisteredHost) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    device.memory.UnregisterHostRange(found->first);
    device.allocations.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* result, void* pointer, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (result == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (FindHost(device, pointer) == device.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    *result = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const auto found = FindHost(device, pointer);
    if (flags == nullptr || found == device.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    *flags = found->second.host_flags;
    return CUDA_SUCCESS;
  });
}

// Hints about where managed memory should live: there is one memory.

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise, CUmemLocation) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    return IsDeviceRange(device, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise, CUdevice) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    return IsDeviceRange(device, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation, unsigned int,
                               CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (!IsDeviceRange(device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return CheckStream(device, context, stream);
  });
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice, CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (!IsDeviceRange(device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return CheckStream(device, context, stream);
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemPrefetchAsync_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuMemPrefetchAsync, ptsz)
OPS_DEBUG_FIRST_ABI(cuMemHostRegister, cuMemHostRegister_v2)
