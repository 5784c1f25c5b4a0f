// What an instrumented kernel calls when an inline check did not pass: decide, report, and say
// whether the access may go ahead. Compiled to PTX by scripts/generate_device_code.py, checked in
// as slow_path_ptx.inc, appended to every instrumented module. Runs rarely, so it is written for
// few registers and small code, not for speed.
#include "shadow/abi/device_abi.h"
#include "shadow/device/linear_thread.h"

using namespace ops_debug::shadow;

extern "C" {

__constant__ ModuleContext __ops_debug_module_context;

static __device__ bool Before(uint64_t launch, uint64_t thread,
                              const volatile FaultRecord* record) {
  const uint64_t held_launch = record->first_launch, held_thread = record->first_thread;
  return held_launch == 0 || launch < held_launch ||
         (launch == held_launch && thread < held_thread);
}

// Counts the offence and publishes it if it comes before what is published. Launch ids start at 1;
// 0 (a function that was called through a pointer does not know its launch) is stored as ~0, so
// that any known launch comes first.
__device__ __noinline__ void __ops_debug_report(uint64_t address, uint32_t site,
                                                uint32_t fault_class, uint64_t base, uint64_t last,
                                                uint64_t launch, uint32_t shadow_value) {
  const uint32_t index = site * kFaultClasses + fault_class;
  FaultRecord* record = reinterpret_cast<FaultRecord*>(__ops_debug_module_context.records) + index;
  atomicAdd(reinterpret_cast<unsigned long long*>(&record->count), 1ull);
  if (launch == 0) launch = ~0ull;
  const uint64_t thread = LinearThread();
  // The lock is held for a few stores; lanes of one warp take turns because each leaves the loop by
  // its own branch (independent thread scheduling, sm_70 and up).
  while (Before(launch, thread, record)) {
    if (atomicCAS(&record->lock, 0u, 1u) != 0) continue;
    __threadfence();
    if (Before(launch, thread, record)) {
      volatile FaultRecord* held = record;
      held->first_launch = launch;
      held->first_thread = thread;
      volatile PublishedFault* out =
          reinterpret_cast<PublishedFault*>(__ops_debug_module_context.published) + index;
      const uint64_t sequence = out->sequence;
      out->sequence = sequence + 1;
      __threadfence_system();
      out->launch_id = launch;
      out->address = address;
      out->bounds_base = base;
      out->bounds_last = last;
      out->block[0] = blockIdx.x;
      out->block[1] = blockIdx.y;
      out->block[2] = blockIdx.z;
      out->thread[0] = threadIdx.x;
      out->thread[1] = threadIdx.y;
      out->thread[2] = threadIdx.z;
      out->shadow_value = shadow_value;
      __threadfence_system();
      out->sequence = sequence + 2;
    }
    __threadfence();
    atomicExch(&record->lock, 0u);
  }
  if (__ops_debug_module_context.flags & kFlagTrapOnError) __trap();
}

// 1: go ahead with the access, 0: skip it. `bytes` is a power of two or, for bulk accesses, any
// size. With `base` == kBoundsUseShadow shadow memory decides, else the access lies in bounds iff
// address - base <= last. An `alignment` of 1 means the instruction needs none.
__device__ __noinline__ uint32_t __ops_debug_check(uint64_t address, uint32_t site, uint32_t bytes,
                                                   uint32_t alignment, uint64_t base, uint64_t last,
                                                   uint64_t launch) {
  if (base != kBoundsUseShadow) {
    if (address - base > last) {
      __ops_debug_report(address, site, kFaultOutOfBounds, base, last, launch, 0);
      return 0;
    }
  } else {
    // Generic addresses of the other spaces have no shadow. Shared memory is one range; offsets
    // start behind what the system reserves (1 KiB on sm_90), so the test allows for that. Where
    // there are clusters, the test is for shared memory of any block of the cluster (instrument.cc
    // replaces the instruction): each has a window of 16 MiB, and all have the same size. Local
    // memory has no size to test against.
    if (__isLocal(reinterpret_cast<void*>(address))) goto in_bounds;
    if (__isShared(reinterpret_cast<void*>(address))) {
      uint64_t offset;
      uint32_t size;
      asm("cvta.to.shared.u64 %0, %1;" : "=l"(offset) : "l"(address));
      asm("mov.u32 %0, %%total_smem_size;" : "=r"(size));
      offset &= 0xff'ffff;
      if (offset + bytes > size + 1024ull) {
        __ops_debug_report(address, site, kFaultOutOfBounds, kBoundsUseShadow, 0, launch,
                           kShadowRedZone);
        return 0;
      }
      goto in_bounds;
    }
    if (address < 65536) {
      __ops_debug_report(address, site, kFaultWildAddress, base, last, launch, kShadowWild);
      return 0;
    }
    const uint64_t* directory =
        reinterpret_cast<const uint64_t*>(__ops_debug_module_context.directory);
    for (uint64_t granule = address >> kShadowGranuleShift;
         granule <= (address + bytes - 1) >> kShadowGranuleShift; granule++) {
      uint64_t entry = granule >> (kDirectoryShift - kShadowGranuleShift);
      if (entry > kDirectoryEntries) entry = kDirectoryEntries;
      const volatile uint8_t* chunk = reinterpret_cast<const volatile uint8_t*>(directory[entry]);
      const uint32_t value = chunk[granule & (kChunkBytes - 1)];
      if (value == 0) continue;
      if (value == kShadowUnknown) {
        atomicAdd(reinterpret_cast<unsigned long long*>(__ops_debug_module_context.counters), 1ull);
        break;
      }
      if (value < 8) {
        const uint64_t end = (granule << kShadowGranuleShift) + value;
        if (address + bytes <= end) break;
      }
      const uint32_t fault_class = value == kShadowFreed  ? kFaultUseAfterFree
                                   : value == kShadowWild ? kFaultWildAddress
                                                          : kFaultOutOfBounds;
      __ops_debug_report(address, site, fault_class, base, last, launch, value);
      return 0;
    }
  }
in_bounds:
  if (address & (alignment - 1)) {
    __ops_debug_report(address, site, kFaultMisaligned, base, last, launch, 0);
    return 0;
  }
  return 1;
}

}  // extern "C"
