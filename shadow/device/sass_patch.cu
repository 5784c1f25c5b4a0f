// What the Sanitizer API calls before a memory instruction of a patched kernel: look the address up
// in shadow memory, report, let the access go ahead. Compiled by scripts/generate_device_code.py
// with --compile-as-tools-patch. The API saves the same registers around every call, whatever the
// function needs, and that is most of the price (measured: 95 % of it). What is left to us: two
// dependent loads (directory, shadow), and no register of our own to save.
//
// The fast path reads the two shadow bytes of the 16-byte block that the access lies in: naturally
// aligned accesses of up to 16 bytes never leave it. Both zero: all addressable. All else (the ends
// of allocations, unknown memory, misalignment, faults) takes the slow path, which is inline
// because a call would make the fast path save registers on the stack (measured: 15 %).
#include "shadow/abi/sass_abi.h"

using namespace ops_debug::shadow;

extern "C" {

// See kSassDirectorySymbol. The slow path has a directory of its own name, so that the fast path's
// registers need not live on.
__device__ uint64_t ops_debug_sass_directory[1];
__device__ uint64_t ops_debug_sass_directory_again[1];
__device__ uint64_t ops_debug_sass_channel[1];
}  // extern "C"

enum PatchResult : uint32_t { kGoAhead = 0 };

// What the slow path knows of an access lies on the stack, out of the compiler's reach: in
// registers it would need more than the calling convention lets a function use freely, and then the
// fast path would save and restore the others. Each callback declares the frame once. The unnamed
// namespace matters: the compiler keeps every external function of a patch.
#define OPS_DEBUG_FRAME() asm volatile(".local .align 8 .b8 ops_debug_frame[80];" ::)

namespace {

template <class T, int offset>
struct OnStack {
  __device__ __forceinline__ operator T() const {
    T value;
    if constexpr (sizeof(T) == 8) {
      asm volatile("ld.local.u64 %0, [ops_debug_frame+%1];" : "=l"(value) : "n"(offset) : "memory");
    } else {
      asm volatile("ld.local.u32 %0, [ops_debug_frame+%1];" : "=r"(value) : "n"(offset) : "memory");
    }
    return value;
  }
  __device__ __forceinline__ void operator=(T value) const {
    if constexpr (sizeof(T) == 8) {
      asm volatile("st.local.u64 [ops_debug_frame+%1], %0;" ::"l"(value), "n"(offset) : "memory");
    } else {
      asm volatile("st.local.u32 [ops_debug_frame+%1], %0;" ::"r"(value), "n"(offset) : "memory");
    }
  }
};
struct Access {
  OnStack<uint64_t, 0> pc;
  OnStack<uint64_t, 8> address;
  OnStack<uint64_t, 16> end;
  OnStack<uint64_t, 24> launch;
  OnStack<uint64_t, 32> at;
  OnStack<uint64_t, 40> order;
  OnStack<uint32_t, 48> flags;
  OnStack<uint32_t, 52> alignment;
  OnStack<uint32_t, 56> fault_class;
  OnStack<uint32_t, 60> shadow_value;
  OnStack<uint32_t, 64> slot;
  OnStack<uint32_t, 68> probes;
};

}  // namespace

static __device__ __forceinline__ const SassChannel* Channel() {
  return reinterpret_cast<const SassChannel*>(ops_debug_sass_channel);
}

static __device__ __forceinline__ SassCounters* HostCounters() {
  return reinterpret_cast<SassCounters*>(
      *static_cast<const volatile uint64_t*>(&Channel()->counters));
}

static __device__ __forceinline__ void AddSystem(uint64_t* counter) {
  asm volatile("red.global.sys.add.u64 [%0], 1;" ::"l"(counter) : "memory");
}
static __device__ __forceinline__ uint64_t ExchangeIfZero(uint64_t* place, uint64_t desired) {
  uint64_t old;
  asm volatile("atom.global.cas.b64 %0, [%1], 0, %2;"
               : "=l"(old)
               : "l"(place), "l"(desired)
               : "memory");
  return old;
}
static __device__ __forceinline__ uint32_t Exchange(uint32_t* place, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.global.exch.b32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(place), "r"(desired)
               : "memory");
  return old;
}

// Special registers one at a time: the compiler would read all of them ahead.
#define OPS_DEBUG_SPECIAL(name)                                      \
  ([]() -> uint32_t {                                                \
    uint32_t value;                                                  \
    asm volatile("mov.u32 %0, %%" name ";" : "=r"(value)::"memory"); \
    return value;                                                    \
  }())

// Number of the thread in the grid. It wraps for grids of more than 2^22 blocks: which offender is
// the first is then arbitrary, but the same every time.
static __device__ __forceinline__ uint32_t LinearThread() {
  uint32_t number = OPS_DEBUG_SPECIAL("ctaid.z");
  number = number * OPS_DEBUG_SPECIAL("nctaid.y") + OPS_DEBUG_SPECIAL("ctaid.y");
  number = number * OPS_DEBUG_SPECIAL("nctaid.x") + OPS_DEBUG_SPECIAL("ctaid.x");
  uint32_t in_block = OPS_DEBUG_SPECIAL("tid.z");
  in_block = in_block * OPS_DEBUG_SPECIAL("ntid.y") + OPS_DEBUG_SPECIAL("tid.y");
  in_block = in_block * OPS_DEBUG_SPECIAL("ntid.x") + OPS_DEBUG_SPECIAL("tid.x");
  return number * 1024 + in_block;
}

static __device__ __forceinline__ SassFaultRecord* Record(const Access& access) {
  return reinterpret_cast<SassFaultRecord*>(
             *static_cast<const volatile uint64_t*>(&Channel()->records)) +
         access.slot;
}

// Among the offenders of one fault, does this one come before the one that is published?
static __device__ __forceinline__ bool ComesFirst(const Access& access) {
  return access.order > static_cast<const volatile SassFaultRecord*>(Record(access))->order;
}

// Finds the slot of this fault. False: the table is full around here, the fault was counted.
static __device__ __forceinline__ bool FindSlot(Access& access) {
  access.slot = SassFirstSlot(SassFaultKey(access.pc, access.fault_class));
#pragma unroll 1
  for (access.probes = 0; access.probes < kSassProbes; access.probes = access.probes + 1) {
    const uint64_t key = SassFaultKey(access.pc, access.fault_class);
    const uint64_t held = ExchangeIfZero(&Record(access)->key, key);
    if (held == 0 || held == key) return true;
    access.slot = (access.slot + 1) & (kSassFaultSlots - 1);
  }
  AddSystem(&HostCounters()->overflow);
  return false;
}

static __device__ __forceinline__ volatile SassPublishedFault* Published(const Access& access) {
  return reinterpret_cast<SassPublishedFault*>(
             *static_cast<const volatile uint64_t*>(&Channel()->published)) +
         access.slot;
}

// The record's lock is held.
static __device__ __forceinline__ void Publish(const Access& access) {
  static_cast<volatile SassFaultRecord*>(Record(access))->order = access.order;
  volatile SassPublishedFault* out = Published(access);
  out->sequence = out->sequence + 1;
  __threadfence_system();
  out->key = SassFaultKey(access.pc, access.fault_class);
  out->launch_id = access.launch;
  out->address = access.address;
  out->access_bytes = static_cast<uint32_t>(access.end) - static_cast<uint32_t>(access.address);
  out->flags = access.flags;
  out->shadow_value = access.shadow_value;
  out->block[0] = OPS_DEBUG_SPECIAL("ctaid.x");
  out->block[1] = OPS_DEBUG_SPECIAL("ctaid.y");
  out->block[2] = OPS_DEBUG_SPECIAL("ctaid.z");
  out->thread[0] = OPS_DEBUG_SPECIAL("tid.x");
  out->thread[1] = OPS_DEBUG_SPECIAL("tid.y");
  out->thread[2] = OPS_DEBUG_SPECIAL("tid.z");
  __threadfence_system();
  out->sequence = out->sequence + 1;
  AddSystem(&HostCounters()->publications);
}

// Counts the offence; publishes it if it comes before what is published.
static __device__ __forceinline__ void Report(Access& access) {
  if (!FindSlot(access)) return;
  asm volatile("red.global.add.u64 [%0], 1;" ::"l"(&Record(access)->count) : "memory");
  access.order =
      ~(static_cast<uint64_t>(static_cast<uint32_t>(access.launch)) << 32 | LinearThread());
  // Lanes of one warp take turns because each leaves the loop by its own branch.
#pragma unroll 1
  while (ComesFirst(access)) {
    if (Exchange(&Record(access)->lock, 1) != 0) continue;
    __threadfence();
    if (ComesFirst(access)) Publish(access);
    __threadfence();
    Exchange(&Record(access)->lock, 0);
  }
  if (Channel()->flags & kFlagTrapOnError) __trap();
}

static __device__ __forceinline__ uint64_t ShadowChunk(const uint64_t* directory,
                                                       uint64_t address) {
  // 32 bits of the quotient: an address beyond 2^58 may alias here; the slow path looks again.
  uint32_t entry = static_cast<uint32_t>(address >> kDirectoryShift);
  if (entry > kDirectoryEntries) entry = kDirectoryEntries;
  return directory[entry];
}

// Decides about one access in full, from memory and not from the L1 cache, where a kernel that runs
// for long may hold shadow bytes of an earlier allocation. True: it is to be reported.
static __device__ __forceinline__ bool IsFault(Access& access) {
  if (access.flags & kSassPrefetch) return false;
  if (access.address < 65536 || access.address >> 47 != 0) {
    access.fault_class = kFaultWildAddress;
    access.shadow_value = kShadowWild;
    return true;
  }
#pragma unroll 1
  for (access.at = access.address; access.at < access.end; access.at = (access.at | 7) + 1) {
    const uint64_t at = access.at;
    const uint64_t place = ShadowChunk(ops_debug_sass_directory_again, at) +
                           ((at >> kShadowGranuleShift) & (kChunkBytes - 1));
    uint32_t value;
    asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(value) : "l"(place));
    if (value == 0) continue;
    if (value < 8 && access.end <= (access.at & ~7ull) + value) continue;
    if (value == kShadowUnknown) {
      AddSystem(&HostCounters()->unknown_accesses);
      return false;
    }
    access.fault_class = value == kShadowFreed  ? kFaultUseAfterFree
                         : value == kShadowWild ? kFaultWildAddress
                                                : kFaultOutOfBounds;
    access.shadow_value = value;
    return true;
  }
  access.fault_class = kFaultMisaligned;
  access.shadow_value = 0;
  return (access.address & (access.alignment - 1)) != 0;
}

static __device__ __forceinline__ void CheckSlowly(uint64_t launch, uint64_t pc, uint64_t address,
                                                   uint32_t bytes, uint32_t flags,
                                                   uint32_t alignment) {
  OPS_DEBUG_FRAME();
  Access access;
  if (launch >> kSassLaunchTagShift == kSassLaunchTag) {
    launch &= kSassLaunchIdMask;
    if (launch == 0) return;
  } else {
    launch = ~0ull;
  }
  access.launch = launch;
  access.pc = pc;
  access.address = address;
  access.end = address + bytes;
  access.flags = flags;
  access.alignment = alignment;
  if (IsFault(access)) Report(access);
}

// `bytes` is a power of two up to 16 and the alignment that the instruction needs.
static __device__ __forceinline__ uint32_t CheckAccess(uint64_t launch, uint64_t pc,
                                                       uint64_t address, uint32_t bytes,
                                                       uint32_t flags) {
  const uint64_t pair_address = ShadowChunk(ops_debug_sass_directory, address) +
                                (static_cast<uint32_t>(address >> kShadowGranuleShift) &
                                 static_cast<uint32_t>(kChunkBytes - 2));
  uint16_t pair;
  asm("ld.global.u16 %0, [%1];" : "=h"(pair) : "l"(pair_address));
  if (pair != 0 || (static_cast<uint32_t>(address) & (bytes - 1)) != 0) {
    CheckSlowly(launch, pc, address, bytes, flags, bytes);
  }
  return kGoAhead;
}

extern "C" {

// Global and generic loads, stores, atomics, prefetches.
__device__ uint32_t ops_debug_sass_global_access(uint64_t launch, uint64_t pc, uint64_t address,
                                                 uint32_t bytes, uint32_t flags, const void*) {
  return CheckAccess(launch, pc, address, bytes, flags);
}

// Asynchronous copies of 4, 8 or 16 bytes from global to shared memory (cp.async). The source is
// null where the instruction fills with zeros.
__device__ uint32_t ops_debug_sass_async_copy(uint64_t launch, uint64_t pc, uint64_t source,
                                              uint32_t, uint32_t bytes) {
  return source == 0 ? kGoAhead : CheckAccess(launch, pc, source, bytes, kSassRead | kSassCopy);
}

// Bulk copies, in blocks of 16 bytes. One thread's instruction moves kilobytes, so a call more or
// less does not matter.
static __device__ __noinline__ uint32_t CheckBulk(uint64_t launch, uint64_t pc, uint64_t address,
                                                  uint32_t bytes, uint32_t flags) {
  CheckSlowly(launch, pc, address, bytes, flags | kSassCopy, 16);
  return kGoAhead;
}
__device__ uint32_t ops_debug_sass_bulk_read(uint64_t launch, uint64_t pc, uint64_t source,
                                             uint32_t, uint32_t, uint32_t data, uint32_t) {
  return CheckBulk(launch, pc, source, (data & 0xffff) * 16, kSassRead);
}
__device__ uint32_t ops_debug_sass_bulk_write(uint64_t launch, uint64_t pc, uint64_t destination,
                                              uint32_t, uint32_t blocks) {
  return CheckBulk(launch, pc, destination, blocks * 16, kSassWrite);
}
__device__ uint32_t ops_debug_sass_bulk_reduce(uint64_t launch, uint64_t pc, uint64_t destination,
                                               uint32_t, uint32_t blocks) {
  return CheckBulk(launch, pc, destination, blocks * 16, kSassRead | kSassWrite);
}

}  // extern "C"
