// Which bytes of global memory were never written: one bit each, set by the host when memory is
// allocated, cleared by whoever writes. The inline tests of instrumented kernels (add_init_checks)
// look at the bits and come here if one is set; afterwards memory that is used stays clear, so this
// runs rarely. Compiled to PTX by scripts/generate_device_code.py, checked in as init_ptx.inc,
// appended to instrumented modules behind slow_path.cu.
#include "shadow/abi/device_abi.h"

using namespace ops_debug::shadow;

extern "C" {

extern __constant__ ModuleContext __ops_debug_module_context;
extern __device__ void __ops_debug_report(uint64_t address, uint32_t site, uint32_t fault_class,
                                          uint64_t base, uint64_t last, uint64_t launch,
                                          uint32_t shadow_value);

// The word that holds the bits of the 32 bytes around `address`.
static __device__ uint32_t* InitWord(uint64_t address) {
  uint64_t entry = address >> kDirectoryShift;
  if (entry > kDirectoryEntries) entry = kDirectoryEntries;
  const uint64_t chunk =
      reinterpret_cast<const uint64_t*>(__ops_debug_module_context.init_directory)[entry];
  return reinterpret_cast<uint32_t*>(
      chunk + ((address >> kShadowGranuleShift) & (kChunkBytes - 1) & ~3ull));
}

// The bits of [address, end) in the word of `address`; `*address` becomes the first byte behind.
static __device__ uint32_t TakeBits(uint64_t* address, uint64_t end) {
  const uint32_t first = static_cast<uint32_t>(*address & 31);
  const uint64_t count = min(static_cast<uint64_t>(32 - first), end - *address);
  *address += count;
  return (count == 32 ? ~0u : (1u << count) - 1) << first;
}

// A read of `elements` (bits, from the lowest: those whose value matters) of `element_bytes` each.
// An element of which no byte was ever written is reported; one that was written in part may be
// masked by whoever reads it.
__device__ __noinline__ void __ops_debug_init_read(uint64_t address, uint32_t site,
                                                   uint32_t element_bytes, uint32_t elements,
                                                   uint64_t launch) {
  for (uint64_t at = address; elements != 0; elements >>= 1, at += element_bytes) {
    if ((elements & 1) == 0) continue;
    uint32_t written = 0;
    for (uint64_t byte = at; byte < at + element_bytes;) {
      // Past the caches of this multiprocessor: another may have written it a moment ago.
      const volatile uint32_t* word = InitWord(byte);
      const uint32_t bits = TakeBits(&byte, at + element_bytes);
      written |= bits & ~*word;
    }
    if (written != 0) continue;
    __ops_debug_report(at, site, kUninitialisedClass, kBoundsUseShadow, 0, launch, element_bytes);
    return;
  }
}

// Memory is about to be written. The bits change before the memory does, for whoever sees it.
__device__ __noinline__ void __ops_debug_init_write(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  while (address < end) {
    uint32_t* word = InitWord(address);
    const uint32_t bits = TakeBits(&address, end);
    if ((*const_cast<const volatile uint32_t*>(word) & bits) != 0) atomicAnd(word, ~bits);
  }
  __threadfence();
}

// ---- Shared memory
// One bit for each byte of the block's shared window, set when it is written; zero at the start of
// the block. The bits lie in shared memory, too (`bits`: address in the window), so that blocks
// cannot disturb each other.

static __device__ uint32_t SharedWord(uint32_t bits, uint32_t offset) {
  uint32_t word;
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(bits + (offset >> 5 << 2)));
  return word;
}

__device__ __noinline__ void __ops_debug_init_shared_read(uint32_t bits, uint32_t offset,
                                                          uint32_t site, uint32_t element_bytes,
                                                          uint32_t elements, uint64_t launch) {
  for (uint64_t at = offset; elements != 0; elements >>= 1, at += element_bytes) {
    if ((elements & 1) == 0) continue;
    uint32_t written = 0;
    for (uint64_t byte = at; byte < at + element_bytes;) {
      const uint32_t word = SharedWord(bits, static_cast<uint32_t>(byte));
      written |= TakeBits(&byte, at + element_bytes) & word;
    }
    if (written != 0) continue;
    __ops_debug_report(at, site, kUninitialisedClass, kBoundsUseShadow, 0, launch, element_bytes);
    return;
  }
}

__device__ __noinline__ void __ops_debug_init_shared_write(uint32_t bits, uint32_t offset,
                                                           uint32_t bytes) {
  const uint64_t end = static_cast<uint64_t>(offset) + bytes;
  for (uint64_t at = offset; at < end;) {
    const uint32_t word = bits + (static_cast<uint32_t>(at) >> 5 << 2);
    const uint32_t mask = TakeBits(&at, end);
    asm volatile("red.shared.or.b32 [%0], %1;" : : "r"(word), "r"(mask) : "memory");
  }
}

}  // extern "C"
