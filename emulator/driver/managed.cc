// Hints about where managed memory should live. There is one memory, so they change no result; they
// are kept, because programs ask for them again (cuMemRangeGetAttribute), and a prefetch keeps its
// place in the stream.
#include <algorithm>
#include <span>

#include "emulator/driver/memory.h"
#include "emulator/driver/operation.h"

namespace ops_debug::emulator {
namespace {

// The managed allocation that holds the range; nullptr if none.
Allocation* FindManaged(Driver& driver, uint64_t address, size_t bytes, uint64_t* offset) {
  const auto found = driver.FindAllocation(address, bytes);
  if (bytes == 0 || found == driver.allocations.end() ||
      found->second.kind != AllocationKind::kManaged) {
    return nullptr;
  }
  *offset = address - found->first;
  return &found->second;
}

// Makes a piece of advice begin at `offset`.
void SplitAt(Allocation& allocation, uint64_t offset) {
  auto& advice = allocation.advice;
  if (advice.empty()) advice[0];
  if (offset < allocation.size_bytes)
    advice.emplace(offset, std::prev(advice.upper_bound(offset))->second);
}

template <class Change>
void ChangeRange(Allocation& allocation, uint64_t offset, size_t bytes, Change change) {
  SplitAt(allocation, offset);
  SplitAt(allocation, offset + bytes);
  for (auto it = allocation.advice.find(offset);
       it != allocation.advice.end() && it->first < offset + bytes; ++it) {
    change(it->second);
  }
}

bool IsLocation(const Driver& driver, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return driver.FindDevice(location.id) != nullptr;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    default:
      return false;
  }
}

CUmemLocation LocationOf(CUdevice ordinal) {
  if (ordinal == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
}

int OrdinalOf(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : int(CU_DEVICE_CPU);
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    uint64_t offset = 0;
    Allocation* allocation = FindManaged(device.driver, address, bytes, &offset);
    const bool needs_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                                advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                                advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (allocation == nullptr || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
        advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (needs_location && !IsLocation(device.driver, location)) return CUDA_ERROR_INVALID_DEVICE;
    ChangeRange(*allocation, offset, bytes, [&](MemoryAdvice& kept) {
      switch (advice) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
          kept.read_mostly = true;
          break;
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
          kept.read_mostly = false;
          break;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
          kept.preferred = location;
          break;
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
          kept.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
          break;
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
          kept.accessed_by.insert(OrdinalOf(location));
          break;
        case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
          kept.accessed_by.erase(OrdinalOf(location));
          break;
        default:
          break;
      }
    });
    return CUDA_SUCCESS;
  });
}

CUresult Prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                  CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    uint64_t offset = 0;
    Allocation* allocation = FindManaged(device.driver, address, bytes, &offset);
    if (allocation == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!IsLocation(device.driver, location)) return CUDA_ERROR_INVALID_DEVICE;
    const CUresult status = Submit(device, context, stream, {});
    if (status != CUDA_SUCCESS) return status;
    ChangeRange(*allocation, offset, bytes,
                [&](MemoryAdvice& kept) { kept.last_prefetch = location; });
    return CUDA_SUCCESS;
  });
}

// `locations`: the first index of the ranges that go to each, ascending from 0; empty: what the
// ranges hold may be lost, which is nothing to do here.
CUresult ForBatch(std::span<const CUdeviceptr> addresses, std::span<const size_t> sizes,
                  std::span<const CUmemLocation> locations, std::span<const size_t> first_of,
                  CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (addresses.empty() || (!first_of.empty() && first_of.front() != 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (const CUmemLocation& location : locations) {
      if (!IsLocation(device.driver, location)) return CUDA_ERROR_INVALID_DEVICE;
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (FindManaged(device.driver, addresses[i], sizes[i], &offset) == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    const CUresult status = Submit(device, context, stream, {});
    if (status != CUDA_SUCCESS || locations.empty()) return status;
    size_t place = 0;
    for (size_t i = 0; i < addresses.size(); ++i) {
      while (place + 1 < first_of.size() && first_of[place + 1] <= i) ++place;
      Allocation* allocation = FindManaged(device.driver, addresses[i], sizes[i], &offset);
      ChangeRange(*allocation, offset, sizes[i],
                  [&](MemoryAdvice& kept) { kept.last_prefetch = locations[place]; });
    }
    return CUDA_SUCCESS;
  });
}

// What all of the range agrees on; `if_mixed` otherwise.
template <class T, class Read>
T Common(const std::span<const MemoryAdvice* const> pieces, T if_mixed, Read read) {
  const T first = read(*pieces.front());
  const bool agree = std::all_of(pieces.begin(), pieces.end(),
                                 [&](const MemoryAdvice* piece) { return read(*piece) == first; });
  return agree ? first : if_mixed;
}

int OrdinalOrInvalid(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? int(CU_DEVICE_INVALID)
                                                       : OrdinalOf(location);
}

CUresult Answer(std::span<const MemoryAdvice* const> pieces, CUmem_range_attribute attribute,
                void* out, size_t out_bytes) {
  const auto give = [&](int value) -> CUresult {
    if (out_bytes != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(out) = value;
    return CUDA_SUCCESS;
  };
  const auto preferred = [&] {
    return Common<int>(pieces, CU_DEVICE_INVALID,
                       [](const MemoryAdvice& a) { return OrdinalOrInvalid(a.preferred); });
  };
  const auto prefetched = [&] {
    return Common<int>(pieces, CU_DEVICE_INVALID,
                       [](const MemoryAdvice& a) { return OrdinalOrInvalid(a.last_prefetch); });
  };
  const auto type_of = [](int ordinal) {
    return int(ordinal == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
               : ordinal == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                            : CU_MEM_LOCATION_TYPE_DEVICE);
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return give(Common<int>(pieces, 0, [](const MemoryAdvice& a) { return int(a.read_mostly); }));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return give(preferred());
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return give(type_of(preferred()));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return give(std::max(0, preferred()));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return give(prefetched());
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return give(type_of(prefetched()));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return give(std::max(0, prefetched()));
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (out_bytes == 0 || out_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      const std::span<int> ordinals(static_cast<int*>(out), out_bytes / sizeof(int));
      std::fill(ordinals.begin(), ordinals.end(), int(CU_DEVICE_INVALID));
      size_t count = 0;
      for (const int ordinal : pieces.front()->accessed_by) {
        const bool everywhere =
            std::all_of(pieces.begin(), pieces.end(),
                        [&](const MemoryAdvice* a) { return a->accessed_by.contains(ordinal); });
        if (everywhere && count < ordinals.size()) ordinals[count++] = ordinal;
      }
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                        CUmemLocation location) {
  return Advise(address, bytes, advice, location);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice ordinal) {
  return Advise(address, bytes, advice, LocationOf(ordinal));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
  return Prefetch(address, bytes, location, flags, stream);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice ordinal, CUstream stream) {
  return Prefetch(address, bytes, LocationOf(ordinal), 0, stream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                 CUmemLocation* locations, size_t* first_of, size_t location_count,
                                 unsigned long long flags,  // NOLINT(google-runtime-int): ABI
                                 CUstream stream) {
  if (addresses == nullptr || sizes == nullptr || locations == nullptr || first_of == nullptr ||
      location_count == 0 || location_count > count || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return ForBatch({addresses, count}, {sizes, count}, {locations, location_count},
                  {first_of, location_count}, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(
    CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations, size_t* first_of,
    size_t location_count, unsigned long long flags,  // NOLINT(google-runtime-int): ABI
    CUstream stream) {
  return cuMemPrefetchBatchAsync(addresses, sizes, count, locations, first_of, location_count,
                                 flags, stream);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                unsigned long long flags,  // NOLINT(google-runtime-int): ABI
                                CUstream stream) {
  if (addresses == nullptr || sizes == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return ForBatch({addresses, count}, {sizes, count}, {}, {}, stream);
}

CUresult cuMemRangeGetAttributes(void** out, size_t* out_bytes, CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr address, size_t bytes) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    uint64_t offset = 0;
    Allocation* allocation = FindManaged(device.driver, address, bytes, &offset);
    if (allocation == nullptr || count == 0 || out == nullptr || out_bytes == nullptr ||
        attributes == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<const MemoryAdvice*> pieces;
    ChangeRange(*allocation, offset, bytes,
                [&](const MemoryAdvice& piece) { pieces.push_back(&piece); });
    for (size_t i = 0; i < count; ++i) {
      if (out[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const CUresult status = Answer(pieces, attributes[i], out[i], out_bytes[i]);
      if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRangeGetAttribute(void* out, size_t out_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes) {
  return cuMemRangeGetAttributes(&out, &out_bytes, &attribute, 1, address, bytes);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemPrefetchAsync_v2, ptsz, 5)
OPS_DEBUG_PER_THREAD(cuMemPrefetchAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemPrefetchBatchAsync, ptsz, 8)
OPS_DEBUG_PER_THREAD(cuMemDiscardAndPrefetchBatchAsync, ptsz, 8)
OPS_DEBUG_PER_THREAD(cuMemDiscardBatchAsync, ptsz, 5)
