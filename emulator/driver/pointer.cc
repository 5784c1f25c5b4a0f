// What a pointer is: cuPointerGetAttribute and its plural.
#include <optional>

#include "emulator/driver/memory.h"

namespace ops_debug::emulator {
namespace {

struct PointerInfo {
  uint64_t base = 0;
  Allocation allocation;
};

std::optional<PointerInfo> Describe(Device& device, uint64_t address) {
  const auto found = device.driver.FindAllocation(address, 1);
  if (found != device.driver.allocations.end()) return PointerInfo{found->first, found->second};
  // A module variable or a mapping of the program's: device memory of the current context.
  PointerInfo info;
  const Device* owner = OwnerOf(device.driver, address);
  if (owner == nullptr || !owner->memory.Find(address, &info.base, &info.allocation.size_bytes)) {
    return std::nullopt;
  }
  info.allocation.context = CurrentContext();
  return info;
}

bool IsHostMemory(const Allocation& allocation) {
  return allocation.kind == AllocationKind::kPinnedHost ||
         allocation.kind == AllocationKind::kRegisteredHost;
}

template <class T>
CUresult Store(void* out, T value) {
  *static_cast<T*>(out) = value;
  return CUDA_SUCCESS;
}

// The device that the memory is on, or that its context is of.
int OrdinalOf(const PointerInfo& info) {
  const Allocation& allocation = info.allocation;
  if (allocation.pool != nullptr) return allocation.pool->device->ordinal;
  if (const Device* owner = OwnerOf(TheDriver(), info.base)) return owner->ordinal;
  return allocation.context != nullptr ? allocation.context->device->ordinal : 0;
}

CUresult Answer(const PointerInfo& info, uint64_t address, CUpointer_attribute attribute,
                void* out) {
  const Allocation& allocation = info.allocation;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Store(out, allocation.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Store(out,
                   unsigned(IsHostMemory(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
      const bool host_visible =
          IsHostMemory(allocation) || allocation.kind == AllocationKind::kManaged;
      // A GPU's own memory has no host address; programs branch on this answer.
      if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !host_visible) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return Store(out, address);
    }
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store(out, int(allocation.syncs_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store(out, allocation.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Store(out, unsigned(allocation.kind == AllocationKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store(out, OrdinalOf(info));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Store(out, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store(out, info.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store(out, size_t(allocation.size_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Store(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store(out, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Store(out, unsigned(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store(out, allocation.pool);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store(out, uint64_t{allocation.id});
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Store(out, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What an attribute of a pointer that CUDA does not know reads as in the plural call.
void AnswerUnknown(CUpointer_attribute attribute, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      Store(out, 0u);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Store(out, -2);
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      Store(out, uint64_t{0});
      break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      Store(out, uint64_t{0});
      break;
    default:
      Store(out, 0);
      break;
  }
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const std::optional<PointerInfo> info = Describe(device, pointer);
    if (out == nullptr || !info) return CUDA_ERROR_INVALID_VALUE;
    return Answer(*info, pointer, attribute, out);
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    const bool settable = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    if (!settable || !Describe(device, pointer)) return CUDA_ERROR_INVALID_VALUE;
    const auto found = device.driver.FindAllocation(pointer, 1);
    if (found != device.driver.allocations.end()) {
      found->second.syncs_memops = *static_cast<const int*>(value) != 0;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** out,
                                CUdeviceptr pointer) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::optional<PointerInfo> info = Describe(device, pointer);
    for (unsigned i = 0; i < count; ++i) {
      if (out[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (!info || Answer(*info, pointer, attributes[i], out[i]) != CUDA_SUCCESS) {
        AnswerUnknown(attributes[i], out[i]);
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
