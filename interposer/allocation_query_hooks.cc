// Queries about addresses answer as if the red zones and the quarantine were
// not there.
#include <optional>

#include "interposer/context_state.h"
#include "interposer/hooks.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;

// The allocation whose extent or state differs from what the driver knows.
std::optional<Allocation> FindAltered(CUdeviceptr address) {
  if (!ChecksMemory()) return std::nullopt;
  auto found = Book().FindContaining(address, /*reserved=*/true);
  if (!found || (!found->freed && found->reserved_bytes == found->size_bytes)) return std::nullopt;
  return found;
}

// Freed or behind the end: as far as the program knows, nothing is there.
bool Gone(const Allocation& allocation, CUdeviceptr address) {
  return allocation.freed || address >= allocation.end();
}

// An address that no device has and no allocation holds: the driver answers as
// for any stray pointer.
constexpr CUdeviceptr kNowhere = 16;

void Correct(CUpointer_attribute attribute, void* data, const Allocation& allocation) {
  if (!data) return;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
    *static_cast<size_t*>(data) = allocation.size_bytes;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
    *static_cast<CUdeviceptr*>(data) = allocation.base;
}

}  // namespace

OPS_DEBUG_HOOK(cuMemGetAddressRange_v2, CUdeviceptr* base, size_t* size_bytes,
               CUdeviceptr address) {
  const auto found = FindAltered(address);
  if (found && Gone(*found, address)) return real(base, size_bytes, kNowhere);
  const CUresult result = real(base, size_bytes, address);
  if (result == CUDA_SUCCESS && found) {
    if (base) *base = found->base;
    if (size_bytes) *size_bytes = found->size_bytes;
  }
  return result;
}

OPS_DEBUG_HOOK(cuPointerGetAttribute, void* data, CUpointer_attribute attribute,
               CUdeviceptr address) {
  const auto found = FindAltered(address);
  if (found && Gone(*found, address)) return real(data, attribute, kNowhere);
  const CUresult result = real(data, attribute, address);
  if (result == CUDA_SUCCESS && found) Correct(attribute, data, *found);
  return result;
}

OPS_DEBUG_HOOK(cuPointerGetAttributes, unsigned int count, CUpointer_attribute* attributes,
               void** data, CUdeviceptr address) {
  const auto found = FindAltered(address);
  if (found && Gone(*found, address)) return real(count, attributes, data, kNowhere);
  const CUresult result = real(count, attributes, data, address);
  if (result == CUDA_SUCCESS && found && attributes && data) {
    for (unsigned int i = 0; i < count; i++) Correct(attributes[i], data[i], *found);
  }
  return result;
}

}  // namespace ops_debug::interposer
