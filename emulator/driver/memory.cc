// Allocation: device, pitched, managed, pinned and registered memory. All of it is host memory at
// its own address, so a device pointer is valid on the host; what distinguishes the kinds is what
// queries answer, how they are freed and which devices may access them.
#include "emulator/driver/memory.h"

#include "emulator/driver/capture.h"
#include "emulator/driver/checked_work.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/operation.h"
#include "emulator/driver/placement.h"
#include "emulator/driver/stream.h"

namespace ops_debug::emulator {
namespace {

// Memory of one device that the host may use is every device's to use.
void ShareWithOthers(Driver& driver, const Device& owner, uint64_t address, uint64_t size_bytes) {
  for (const auto& device : driver.devices) {
    if (device.get() != &owner) device->memory.RegisterHostRange(address, size_bytes);
  }
}

void Unshare(Driver& driver, const Device* owner, uint64_t address) {
  for (const auto& device : driver.devices) {
    if (device.get() != owner) device->memory.UnregisterHostRange(address);
  }
}

bool IsShared(AllocationKind kind) {
  return kind == AllocationKind::kPinnedHost || kind == AllocationKind::kManaged;
}

}  // namespace

uint64_t AllocateMemory(Device& device, CUctx_st& context, uint64_t size_bytes, Allocation record) {
  const uint64_t in_use = device.memory.allocated_bytes();
  if (size_bytes > device.total_memory_bytes || in_use > device.total_memory_bytes - size_bytes) {
    return 0;
  }
  const uint64_t place = TakeNextPlace();
  const uint64_t address = place == 0 ? device.memory.Allocate(size_bytes)
                           : device.memory.Adopt(place, size_bytes) ? place
                                                                    : 0;
  if (address == 0) return 0;
  record.size_bytes = size_bytes;
  record.id = device.driver.next_id++;
  record.context = &context;
  const bool host_writes = IsShared(record.kind);
  if (host_writes) ShareWithOthers(device.driver, device, address, size_bytes);
  device.driver.allocations[address] = std::move(record);
  TellAllocated(address, size_bytes);
  if (host_writes) TellHostWritable(address, size_bytes);
  return address;
}

void ReleaseAllocation(Driver& driver, std::map<uint64_t, Allocation>::iterator allocation) {
  const uint64_t address = allocation->first;
  TellReleased(address, allocation->second.size_bytes);
  if (allocation->second.kind == AllocationKind::kRegisteredHost) {
    Unshare(driver, nullptr, address);
  } else {
    Device* owner = OwnerOf(driver, address);
    if (IsShared(allocation->second.kind)) Unshare(driver, owner, address);
    if (owner != nullptr) owner->memory.Free(address);
  }
  driver.allocations.erase(allocation);
}

Device* OwnerOf(const Driver& driver, uint64_t address) {
  for (const auto& device : driver.devices) {
    if (device->memory.Owns(address)) return device.get();
  }
  return nullptr;
}

bool IsDeviceRange(const Device& device, uint64_t address, uint64_t size_bytes) {
  Driver& driver = device.driver;
  const Device* owner = OwnerOf(driver, address);
  uint64_t base = 0, bytes = 0;
  if (owner != nullptr && owner->memory.Find(address, &base, &bytes)) {
    const uint64_t offset = address - base;
    // Mappings that lie side by side count as one range.
    return (offset <= bytes && size_bytes <= bytes - offset) ||
           owner->memory.IsMapped(address, size_bytes);
  }
  return driver.FindAllocation(address, size_bytes) != driver.allocations.end();
}

bool IsUnifiedRange(const Device& device, uint64_t address, uint64_t size_bytes) {
  return OwnerOf(device.driver, address) == nullptr || IsDeviceRange(device, address, size_bytes);
}

MemoryClass Classify(Driver& driver, uint64_t address) {
  const auto found = driver.FindAllocation(address, 1);
  if (found == driver.allocations.end()) {
    // A module variable, or mapped by the program, or none of CUDA's.
    return OwnerOf(driver, address) != nullptr ? MemoryClass::kDevice : MemoryClass::kPageable;
  }
  switch (found->second.kind) {
    case AllocationKind::kPinnedHost:
    case AllocationKind::kRegisteredHost:
      return MemoryClass::kPinned;
    case AllocationKind::kManaged:
      return MemoryClass::kManaged;
    case AllocationKind::kDevice:
    case AllocationKind::kPool:
      break;
  }
  return MemoryClass::kDevice;
}

bool SyncsMemops(Driver& driver, uint64_t address) {
  const auto found = driver.FindAllocation(address, 1);
  return found != driver.allocations.end() && found->second.syncs_memops;
}

namespace {

constexpr uint64_t kPitchAlignment = 512;

CUresult Allocate(CUdeviceptr* result, size_t bytes, Allocation record) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = RefuseUnsafe();
    if (status != CUDA_SUCCESS) return status;
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
  const auto found = device.driver.FindAllocation(reinterpret_cast<uint64_t>(pointer), 1);
  const bool is_host = found != device.driver.allocations.end() &&
                       (found->second.kind == AllocationKind::kPinnedHost ||
                        found->second.kind == AllocationKind::kRegisteredHost);
  return is_host ? found : device.driver.allocations.end();
}

// Ends the allocation at `address` if `is_right(kind)`, once the devices have nothing left to do.
template <class IsRight>
CUresult Free(uint64_t address, CUresult if_wrong, IsRight is_right) {
  const auto find = [&](Driver& driver, std::map<uint64_t, Allocation>::iterator* found) {
    *found = driver.allocations.find(address);
    return *found != driver.allocations.end() && !(*found)->second.is_freed &&
           is_right((*found)->second.kind);
  };
  std::map<uint64_t, Allocation>::iterator found;
  CUresult status = InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (!find(device.driver, &found)) return if_wrong;
    return RefuseUnsafe();
  });
  if (status != CUDA_SUCCESS) return status;
  for (const auto& device : TheDriver().devices) WaitForDevice(*device);
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (!find(device.driver, &found)) return if_wrong;  // freed by another thread meanwhile
    if (found->second.kind == AllocationKind::kPool) {
      ReturnToPool(device.driver, found);
    } else {
      ReleaseAllocation(device.driver, found);
    }
    FinishWait(device);
    return CUDA_SUCCESS;
  });
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
  if (address == 0) return InContext([](Device&, CUctx_st&) { return CUDA_SUCCESS; });
  if (IsGraphMemory(address)) {
    for (const auto& device : TheDriver().devices) WaitForDevice(*device);
    return InContext([&](Device&, CUctx_st&) -> CUresult {
      return FreeGraphMemory(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  }
  return Free(address, CUDA_ERROR_INVALID_VALUE, [](AllocationKind kind) {
    return kind != AllocationKind::kPinnedHost && kind != AllocationKind::kRegisteredHost;
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
    const Device* owner = OwnerOf(device.driver, address);
    if (owner == nullptr || !owner->memory.Find(address, &found_base, &found_bytes)) {
      return CUDA_ERROR_NOT_FOUND;
    }
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
  if (pointer == nullptr) return InContext([](Device&, CUctx_st&) { return CUDA_SUCCESS; });
  return Free(reinterpret_cast<uint64_t>(pointer), CUDA_ERROR_INVALID_VALUE,
              [](AllocationKind kind) { return kind == AllocationKind::kPinnedHost; });
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = RefuseUnsafe();
    if (status != CUDA_SUCCESS) return status;
    Driver& driver = device.driver;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const auto next = driver.allocations.upper_bound(address);
    const bool overlaps_next = next != driver.allocations.end() && next->first - address < bytes;
    if (overlaps_next || driver.FindAllocation(address, 1) != driver.allocations.end()) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    for (const auto& any : driver.devices) any->memory.RegisterHostRange(address, bytes);
    driver.allocations[address] = {.kind = AllocationKind::kRegisteredHost,
                                   .size_bytes = bytes,
                                   .id = driver.next_id++,
                                   .context = &context,
                                   .host_flags = flags};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* pointer) {
  return Free(reinterpret_cast<uint64_t>(pointer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
              [](AllocationKind kind) { return kind == AllocationKind::kRegisteredHost; });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* result, void* pointer, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (result == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (FindHost(device, pointer) == device.driver.allocations.end())
      return CUDA_ERROR_INVALID_VALUE;
    *result = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const auto found = FindHost(device, pointer);
    if (flags == nullptr || found == device.driver.allocations.end())
      return CUDA_ERROR_INVALID_VALUE;
    *flags = found->second.host_flags;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_FIRST_ABI(cuMemHostRegister, cuMemHostRegister_v2)
