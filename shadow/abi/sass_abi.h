// The contract between the device function that the second engine patches into machine code
// (shadow/device/sass_patch.cu) and the host (interposer/sass_engine*). Plain data, compiled by the
// host compiler and by nvcc. The look-up itself is that of device_abi.h.
#pragma once

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): also compiled as device code

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {

// The patch is loaded once per context. Two variables of it never exist in memory: the host writes
// the context's values over the instructions that would load the variables' addresses
// (interposer/sass_patch_image.h), so that the fast path needs no load to find the directory.
constexpr char kSassDirectorySymbol[] = "ops_debug_sass_directory";  // uint64_t[entries + 1]
constexpr char kSassDirectoryAgainSymbol[] = "ops_debug_sass_directory_again";  // the same
constexpr char kSassChannelSymbol[] = "ops_debug_sass_channel";                 // a SassChannel

// The device functions of the patch, by the class of instructions they serve.
constexpr char kSassGlobalAccess[] = "ops_debug_sass_global_access";
constexpr char kSassAsyncCopy[] = "ops_debug_sass_async_copy";
constexpr char kSassBulkRead[] = "ops_debug_sass_bulk_read";
constexpr char kSassBulkWrite[] = "ops_debug_sass_bulk_write";
constexpr char kSassBulkReduce[] = "ops_debug_sass_bulk_reduce";

// ---- Launches
// What the API passes to the patch as user data: the tag and the launch's number; the tag alone
// means "do not report". Launches that the host did not announce (nodes that a program adds to a
// graph itself) have a value of the driver's.
constexpr uint64_t kSassLaunchTag = 0xd5a5;
constexpr uint32_t kSassLaunchTagShift = 48;
constexpr uint64_t kSassLaunchIdMask = (1ull << kSassLaunchTagShift) - 1;

// ---- Fault channel
// Faults are deduplicated by (pc, class) in an open hash table in device memory; the first offender
// of each is also in pinned host memory, where it survives a context that dies.
constexpr uint32_t kSassFaultSlots = 1u << 12;  // a power of two
constexpr uint32_t kSassProbes = 64;            // slots looked at before a fault counts as overflow

// Key of a fault; never 0 because no code lies at address 0. kSassRetired marks a slot whose code
// was unloaded.
#ifdef __CUDACC__
#define OPS_DEBUG_HOST_DEVICE __host__ __device__
#else
#define OPS_DEBUG_HOST_DEVICE
#endif
OPS_DEBUG_HOST_DEVICE constexpr uint64_t SassFaultKey(uint64_t pc, uint32_t fault_class) {
  return pc << 2 | fault_class;
}
constexpr uint64_t SassFaultPc(uint64_t key) { return key >> 2; }
constexpr uint32_t SassFaultClass(uint64_t key) { return static_cast<uint32_t>(key) & 3; }
constexpr uint64_t kSassRetired = 1;

OPS_DEBUG_HOST_DEVICE constexpr uint32_t SassFirstSlot(uint64_t key) {
  return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15ull) >> 40) & (kSassFaultSlots - 1);
}

struct SassFaultRecord {
  uint64_t key;  // 0 = free
  uint64_t count;
  uint64_t order;  // of the offender in SassPublishedFault; earlier ones have larger numbers
  uint32_t lock;
  uint32_t reserved;
};

struct SassPublishedFault {
  uint64_t sequence;  // odd while the device writes, 0 = nothing published
  uint64_t key;
  uint64_t launch_id;  // ~0 = not known
  uint64_t address;
  uint32_t block[3];
  uint32_t thread[3];
  uint32_t access_bytes;
  uint32_t flags;         // kSass...
  uint32_t shadow_value;  // that decided, if one did
  uint32_t reserved;
};
// The first four are the Sanitizer API's.
constexpr uint32_t kSassRead = 1;
constexpr uint32_t kSassWrite = 2;
constexpr uint32_t kSassSystemAtomic = 4;
constexpr uint32_t kSassPrefetch = 8;
constexpr uint32_t kSassCopy = 16;  // asynchronous or bulk

struct SassChannel {
  uint64_t records;    // device address of SassFaultRecord[kSassFaultSlots]
  uint64_t published;  // device-visible address of SassPublishedFault[kSassFaultSlots]
  uint64_t counters;   // device-visible address of SassCounters, in pinned host memory
  uint32_t flags;      // kFlag... of device_abi.h
  uint32_t reserved;
};

struct SassCounters {
  uint64_t unknown_accesses;  // to memory of unknown origin, let through
  uint64_t overflow;          // faults that found no slot
  uint64_t publications;      // how often a SassPublishedFault was written
  uint64_t reserved;
};

static_assert(kFaultClasses == 4, "two bits of the key hold the class");
static_assert(sizeof(SassFaultRecord) == 32 && sizeof(SassPublishedFault) == 72 &&
              sizeof(SassChannel) == 32 && sizeof(SassCounters) == 32);

}  // namespace ops_debug::shadow
