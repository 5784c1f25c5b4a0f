// The contract between instrumented device code and the host: every structure that both sides
// touch, and the numbers they agree on. Plain data, compiled by the host compiler and by nvcc
// (shadow/device/slow_path.cu). Nothing here may change without kAbiVersion.
#pragma once

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): also compiled as device code

namespace ops_debug::shadow {

constexpr uint32_t kAbiVersion = 3;

// ---- Shadow memory
// -------------------------------------------------------------------------------------------------
// One shadow byte describes 8 bytes of device memory (the encoding of AddressSanitizer, Serebryany
// et al., USENIX ATC 2012): 0 = all addressable, 1..7 = that many leading bytes, >= 0x80 = none,
// for the reason that the value names. A directory of 2^21 pointers, one per 64 MiB of a 47-bit
// address space, leads to chunks of 8 MiB of shadow. Regions that were never touched share one
// chunk full of kShadowUnknown, so no look-up can fault and no address space needs to be reserved.
// Entry kDirectoryEntries (one more) serves addresses beyond 47 bits: a chunk full of kShadowWild.
constexpr uint32_t kShadowGranuleShift = 3;
constexpr uint32_t kDirectoryShift = 26;
constexpr uint32_t kDirectoryEntries = 1u << 21;
constexpr uint64_t kChunkBytes = 1ull << (kDirectoryShift - kShadowGranuleShift);

constexpr uint8_t kShadowUnknown = 0xf0;  // not allocated by a call we saw: allowed, counted
constexpr uint8_t kShadowWild = 0xf1;     // no address a GPU can have
constexpr uint8_t kShadowRedZone = 0xfa;  // behind the end of an allocation
constexpr uint8_t kShadowPool = 0xfc;     // a pool's, and no block has held it yet
constexpr uint8_t kShadowFreed = 0xfd;    // freed and in quarantine, or given back to its pool

// ---- Module context
// ------------------------------------------------------------------------------------------------
// Variable kModuleContextSymbol in `.const` of every instrumented module; the host fills it once
// per context and module.
constexpr char kModuleContextSymbol[] = "__ops_debug_module_context";
struct ModuleContext {
  uint64_t directory;  // device address of uint64_t[kDirectoryEntries + 1]
  uint64_t records;    // device address of FaultRecord[site_count * kFaultClasses]
  uint64_t published;  // device-visible address of PublishedFault[site_count * kFaultClasses] in
                       // pinned host memory
  uint64_t counters;   // device address of Counters
  uint32_t flags;      // kFlag...
  uint32_t abi_version;
  uint64_t init_directory;  // as `directory`, for bytes that were never written; 0: not checked
  // The table of numerical faults (precision_abi.h); no slots: not checked.
  uint64_t numeric_records;    // device address of NumericRecord[numeric_slots], zero at start
  uint64_t numeric_published;  // device-visible address of PublishedNumeric[numeric_slots] in
                               // pinned host memory
  uint32_t numeric_slots;      // a power of two
  uint32_t reserved;
};
constexpr uint32_t kFlagTrapOnError = 1;  // --on-error trap

// ---- Memory that was never written
// The same directory and chunks once more, but a shadow byte holds one bit for each of its 8 bytes:
// bit i is set while byte i has not been written since the memory was allocated. Memory that is not
// watched has no bit set. Bits are only changed by 32-bit atomics.
constexpr uint32_t kUninitialisedClass =
    0;  // of a site that reads it (Site::init), in place of FaultClass
enum InitRangeState : uint32_t {
  kInitWritten = 0,
  kInitUnwritten = 1,
  kInitAsSource = 2,
};
// Parameter of the kernel kInitRangeKernel (init_ranges.cu).
struct InitRange {
  uint64_t directory;
  uint64_t address;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t pitch_bytes;
  uint64_t source_directory;  // kInitAsSource
  uint64_t source;
  uint64_t source_pitch_bytes;
  uint32_t state;  // InitRangeState
  uint32_t reserved;
};
constexpr char kInitRangeKernel[] = "ops_debug_init_range";

// ---- Launch parameter
// ---------------------------------------------------------------------------------------------- A
// twin has the original's parameters and one more, 8-byte aligned: LaunchHeader, then one
// BoundsEntry per bounds slot.
struct LaunchHeader {
  uint64_t launch_id;  // number of the launch in this process, from 1
};
// An access at `address` through this slot is in bounds iff address - base <= last (unsigned). The
// host computes `last` as allocation size - access size, so one entry serves one (pointer
// parameter, access size) pair. kBoundsUseShadow in `base` (with last = 0) makes every access take
// the slow path, which then asks shadow memory: for pointers that no known live allocation holds,
// for allocations smaller than the access, and when the pointer lacks the alignment that the pass
// relied on.
struct BoundsEntry {
  uint64_t base;
  uint64_t last;
};
constexpr uint64_t kBoundsUseShadow = ~0ull;

// ---- Fault channel
// -------------------------------------------------------------------------------------------------
enum FaultClass : uint32_t {
  kFaultOutOfBounds = 0,
  kFaultUseAfterFree = 1,
  kFaultMisaligned = 2,
  kFaultWildAddress = 3,  // null page or beyond the address space
};
constexpr uint32_t kFaultClasses = 4;

// Deduplication state of one (site, class), in device memory, zero at start.
struct FaultRecord {
  uint64_t count;
  uint64_t first_launch;  // launch id of the offender held in PublishedFault, 0 = none
  uint64_t first_thread;  // its LinearThread
  uint32_t lock;
  uint32_t reserved;
};

// The first offender of one (site, class): the lowest thread of the earliest launch. In pinned host
// memory, so it survives a context that dies. `sequence` is odd while the device writes (a
// seqlock), 0 = nothing published.
struct PublishedFault {
  uint64_t sequence;
  uint64_t launch_id;
  uint64_t address;
  uint64_t bounds_base;  // BoundsEntry that failed; kBoundsUseShadow if shadow memory decided
  uint64_t bounds_last;
  uint32_t block[3];
  uint32_t thread[3];
  uint32_t shadow_value;  // shadow byte that decided, if one did
  uint32_t reserved;
};

struct Counters {
  uint64_t unknown_accesses;  // accesses to memory of unknown origin, let through
  uint64_t lost_numeric;      // numerical faults for which the table had no slot left
};

// ---- Updates of shadow memory
// -------------------------------------------------------------------------------------------------
// What apply_updates.cu writes: `count` shadow bytes at a device address. The table is the kernel's
// only parameter, one block of threads serves one update; two sizes, because most launches carry
// few.
struct ShadowUpdate {
  uint64_t address;
  uint32_t count;
  uint32_t value;
};
constexpr uint32_t kFewUpdates = 14;
constexpr uint32_t kManyUpdates = 240;
template <uint32_t kCount>
struct ShadowUpdateTable {
  ShadowUpdate updates[kCount];
};
constexpr char kApplyFewUpdates[] = "ops_debug_apply_few_updates";
constexpr char kApplyManyUpdates[] = "ops_debug_apply_many_updates";
static_assert(sizeof(ShadowUpdateTable<kManyUpdates>) <= 4096 - 128);

static_assert(sizeof(InitRange) == 72);
static_assert(sizeof(ModuleContext) == 72 && sizeof(LaunchHeader) == 8 &&
              sizeof(BoundsEntry) == 16);
static_assert(sizeof(FaultRecord) == 32 && sizeof(PublishedFault) == 72 && sizeof(Counters) == 16);

}  // namespace ops_debug::shadow
