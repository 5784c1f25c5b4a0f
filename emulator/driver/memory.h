// Memory as the files of this folder share it.
#pragma once

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// Fresh memory of the given kind, entered in Device::allocations; 0 when the device is full.
uint64_t AllocateMemory(Device& device, CUctx_st& context, uint64_t size_bytes, Allocation record);

// True if a copy may touch [address, address + size_bytes): one live allocation, module variable or
// registered range holds it.
bool IsDeviceRange(const Device& device, uint64_t address, uint64_t size_bytes);

// For pointers that may be the host's own (unified addressing): true as well for memory that no
// part of CUDA owns.
bool IsUnifiedRange(const Device& device, uint64_t address, uint64_t size_bytes);

// Hands `address` back to its pool in stream order: it stays mapped until the next synchronisation.
void ReturnToPool(Device& device, std::map<uint64_t, Allocation>::iterator allocation);

}  // namespace ops_debug::emulator
