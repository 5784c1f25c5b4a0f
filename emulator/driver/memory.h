// Memory as the files of this folder share it. All of it is called with the driver's lock held.
#pragma once

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// Fresh memory of the given kind, entered in Driver::allocations; 0 when the device is full. What
// the host may hold a pointer to is accessible on every device.
uint64_t AllocateMemory(Device& device, CUctx_st& context, uint64_t size_bytes, Allocation record);

// Ends an allocation that is not of a pool.
void ReleaseAllocation(Driver& driver, std::map<uint64_t, Allocation>::iterator allocation);

// True if a copy may touch [address, address + size_bytes): one live allocation of any device,
// module variable or registered range holds it.
bool IsDeviceRange(const Device& device, uint64_t address, uint64_t size_bytes);

// For pointers that may be the host's own (unified addressing): true as well for memory that no
// part of CUDA owns.
bool IsUnifiedRange(const Device& device, uint64_t address, uint64_t size_bytes);

// The device whose arena `address` lies in; nullptr if it is other memory of the host.
Device* OwnerOf(const Driver& driver, uint64_t address);

// What a pointer leads to, as far as synchronisation goes.
enum class MemoryClass : uint8_t { kPageable, kPinned, kManaged, kDevice };
MemoryClass Classify(Driver& driver, uint64_t address);
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: synchronous calls on this memory always wait.
bool SyncsMemops(Driver& driver, uint64_t address);

// ---- Pools.
CUmemPoolHandle_st* AddPool(Driver& driver, Device& device);
// Hands memory back to its pool: it stays mapped until the next synchronisation.
void ReturnToPool(Driver& driver, std::map<uint64_t, Allocation>::iterator allocation);
// The stream has reached the cuMemFreeAsync of allocation `id` at `address`.
void FinishStreamFree(Driver& driver, uint64_t address, uint64_t id);

}  // namespace ops_debug::emulator
