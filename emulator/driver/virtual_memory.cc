// Virtual memory management: physical memory (cuMemCreate) apart from addresses
// (cuMemAddressReserve). Physical memory is a memfd; mapping it replaces a part of the reserved
// arena by a shared view of that file, so several mappings of one handle are one memory, as on a
// GPU. Kernels may touch a mapping only after cuMemSetAccess, which opens its pages in the page
// map. The file descriptor also is what an export gives to another process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>

#include "emulator/driver/memory.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

// As on NVIDIA's data-center GPUs, whose large pages have this size.
constexpr size_t kGranularityBytes = size_t{2} << 20;

struct PhysicalMemory {
  PhysicalMemory() = default;
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  ~PhysicalMemory() {
    if (file >= 0) close(file);
  }
  Device* device = nullptr;
  CUmemAllocationProp properties{};
  size_t size_bytes = 0;
  int file = -1;
  unsigned references = 1;  // handles that the program holds
  unsigned mappings = 0;
};

struct Mapping {
  PhysicalMemory* memory = nullptr;
  size_t size_bytes = 0;
  std::map<int, CUmemAccess_flags> access;  // by device ordinal; -1: the host
};

// Guarded by the device's lock, like everything that handles lead to.
struct Book {
  HandleTable<PhysicalMemory> memories;
  std::map<uint64_t, Mapping> mappings;  // by address
};

// Never destroyed: programs call the driver from atexit handlers.
Book& TheBook() {
  static Book& book = *new Book;
  return book;
}

CUmemGenericAllocationHandle HandleOf(const PhysicalMemory* memory) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(memory);
}

PhysicalMemory* Find(CUmemGenericAllocationHandle handle) {
  return TheBook().memories.Find(reinterpret_cast<const void*>(handle));
}

// The mapping that holds `address`; end() if none.
std::map<uint64_t, Mapping>::iterator FindMapping(uint64_t address) {
  auto& mappings = TheBook().mappings;
  auto above = mappings.upper_bound(address);
  if (above == mappings.begin()) return mappings.end();
  --above;
  return address - above->first < above->second.size_bytes ? above : mappings.end();
}

void DropUnused(PhysicalMemory& memory) {
  if (memory.references != 0 || memory.mappings != 0) return;
  memory.device->memory.CountAllocated(-static_cast<int64_t>(memory.size_bytes));
  TheBook().memories.Remove(&memory);
}

bool IsGranular(uint64_t value) { return value % kGranularityBytes == 0; }

CUresult CheckProperties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!IsDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((unsigned(properties->requestedHandleTypes) & ~known) != 0) {
    Say("cuMemCreate: memory can be shared through POSIX file descriptors only");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// body(PhysicalMemory&) for a live handle.
template <class Body>
CUresult WithMemory(CUmemGenericAllocationHandle handle, Body body) {
  return InDriver([&](Driver&) -> CUresult {
    PhysicalMemory* memory = Find(handle);
    return memory != nullptr ? body(*memory) : CUDA_ERROR_INVALID_VALUE;
  });
}

// body(Device&) for the device in whose arena `address` is reserved.
template <class Body>
CUresult WithOwner(uint64_t address, Body body) {
  return InDriver([&](Driver& driver) -> CUresult {
    Device* owner = OwnerOf(driver, address);
    return owner != nullptr ? body(*owner) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult Add(Device& device, int file, size_t size_bytes, const CUmemAllocationProp& properties,
             CUmemGenericAllocationHandle* handle) {
  auto memory = std::make_unique<PhysicalMemory>();
  memory->device = &device;
  memory->file = file;
  memory->size_bytes = size_bytes;
  memory->properties = properties;
  device.memory.CountAllocated(static_cast<int64_t>(size_bytes));
  *handle = HandleOf(TheBook().memories.Add(std::move(memory)));
  return CUDA_SUCCESS;
}

// Opens or closes whole mappings to a device: [address, address + size_bytes) begins and ends with
// one. The arena's own device has them in its page map, others as memory of the host.
CUresult SetAccess(Device& owner, uint64_t address, size_t size_bytes,
                   const CUmemAccessDesc& access) {
  const bool is_device = access.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Device* device = is_device ? TheDriver().FindDevice(access.location.id) : nullptr;
  if (is_device && device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const bool open = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  auto mapping = TheBook().mappings.find(address);
  if (mapping == TheBook().mappings.end() || !owner.memory.IsMapped(address, size_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (device == &owner) owner.memory.SetAccessible(address, size_bytes, open);
  for (; mapping != TheBook().mappings.end() && mapping->first - address < size_bytes; ++mapping) {
    mapping->second.access[is_device ? access.location.id : -1] = access.flags;
    if (device == nullptr || device == &owner) continue;
    if (open) {
      device->memory.RegisterHostRange(mapping->first, mapping->second.size_bytes);
    } else {
      device->memory.UnregisterHostRange(mapping->first);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  return OnDevice([&](Device&) -> CUresult {
    if (granularity == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult status = CheckProperties(properties);
    if (status == CUDA_SUCCESS) *granularity = kGranularityBytes;
    return status;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* result, size_t bytes, size_t alignment,
                             CUdeviceptr /*wish*/,
                             unsigned long long flags) {  // NOLINT(google-runtime-int): ABI
  return OnDevice([&](Device& device) -> CUresult {
    if (result == nullptr || bytes == 0 || !IsGranular(bytes) || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *result = device.memory.ReserveAddresses(bytes, std::max(alignment, kGranularityBytes));
    return *result != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return WithOwner(address, [&](Device& device) -> CUresult {
    const bool whole = device.memory.InReservation(address, bytes) &&
                       !device.memory.InReservation(address, bytes + 1);
    return whole && device.memory.FreeReservation(address) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties,
                     unsigned long long flags) {  // NOLINT(google-runtime-int): ABI
  return OnDevice([&](Device& current) -> CUresult {
    if (handle == nullptr || bytes == 0 || !IsGranular(bytes) || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult status = CheckProperties(properties);
    if (status != CUDA_SUCCESS) return status;
    Device& device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                         ? *TheDriver().FindDevice(properties->location.id)
                         : current;
    const uint64_t in_use = device.memory.allocated_bytes();
    if (bytes > device.total_memory_bytes || in_use > device.total_memory_bytes - bytes) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const int file = memfd_create("ops-debug device memory", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      close(file);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return Add(device, file, bytes, *properties, handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return WithMemory(handle, [](PhysicalMemory& memory) -> CUresult {
    if (memory.references == 0) return CUDA_ERROR_INVALID_VALUE;
    --memory.references;
    DropUnused(memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {  // NOLINT(google-runtime-int): ABI
  return WithMemory(handle, [&](PhysicalMemory& memory) -> CUresult {
    Device* owner = OwnerOf(TheDriver(), address);
    if (owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (flags != 0 || bytes == 0 || !IsGranular(bytes) || !IsGranular(offset) ||
        !IsGranular(address) || memory.references == 0 || offset > memory.size_bytes ||
        bytes > memory.size_bytes - offset || !owner->memory.InReservation(address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!owner->memory.Map(address, bytes, memory.file, offset)) return CUDA_ERROR_INVALID_VALUE;
    TheBook().mappings[address] = {.memory = &memory, .size_bytes = bytes};
    ++memory.mappings;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return WithOwner(address, [&](Device& owner) -> CUresult {
    if (!owner.memory.Unmap(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto& mappings = TheBook().mappings;
    for (auto it = mappings.find(address); it != mappings.end() && it->first - address < bytes;) {
      PhysicalMemory& memory = *it->second.memory;
      for (const auto& [ordinal, flags] : it->second.access) {
        Device* device = TheDriver().FindDevice(ordinal);
        if (device != nullptr && device != &owner) device->memory.UnregisterHostRange(it->first);
      }
      it = mappings.erase(it);
      --memory.mappings;
      DropUnused(memory);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  return WithOwner(address, [&](Device& owner) -> CUresult {
    if (access == nullptr || count == 0 || !IsGranular(bytes)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
        Say("cuMemSetAccess: read-only mappings are not supported by this device");
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      const CUresult status = SetAccess(owner, address, bytes, access[i]);
      if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags,  // NOLINT(google-runtime-int): ABI
                        const CUmemLocation* location, CUdeviceptr address) {
  return OnDevice([&](Device&) -> CUresult {
    const auto mapping = FindMapping(address);
    if (flags == nullptr || location == nullptr || mapping == TheBook().mappings.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int who = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1;
    const auto known = mapping->second.access.find(who);
    *flags = known != mapping->second.access.end() ? known->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return OnDevice([&](Device&) -> CUresult {
    const auto mapping = FindMapping(reinterpret_cast<uint64_t>(address));
    if (handle == nullptr || mapping == TheBook().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    ++mapping->second.memory->references;
    *handle = HandleOf(mapping->second.memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return WithMemory(handle, [&](PhysicalMemory& memory) -> CUresult {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *properties = memory.properties;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) {  // NOLINT(google-runtime-int)
  return WithMemory(handle, [&](PhysicalMemory& memory) -> CUresult {
    const bool asked =
        type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        (memory.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    if (shareable == nullptr || flags != 0 || !asked) return CUDA_ERROR_INVALID_VALUE;
    const int file = fcntl(memory.file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareable) = file;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The descriptor itself is passed, not a pointer to it.
    const int file =
        fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0);
    struct stat status {};
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    const auto bytes =
        fstat(file, &status) == 0 ? static_cast<uint64_t>(status.st_size) : uint64_t{0};
    if (bytes == 0 || !IsGranular(bytes)) {
      close(file);
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return Add(device, file, bytes, properties, handle);
  });
}

}  // extern "C"
