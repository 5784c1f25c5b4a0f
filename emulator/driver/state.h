// The state behind the driver API: the devices, their contexts and everything that a handle can
// name.
//
// CUDA's opaque handle types (CUcontext = CUctx_st*, ...) are defined here as plain data, so
// handles need no casts. Handles and addresses are the process's, so their tables are the Driver's;
// what a GPU has of its own is a Device's. One lock guards all of it, except the order of the work
// in streams, which work_scheduler.h keeps: work runs on the devices' workers, behind the calls
// that submit it.
#pragma once

#include <cuda.h>  // with __CUDA_API_VERSION_INTERNAL: every ABI version of every function is declared

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/driver/abi.h"
#include "emulator/driver/handles.h"
#include "emulator/driver/thread_stack.h"
#include "emulator/executor.h"
#include "emulator/memory.h"

namespace ops_debug::emulator {

struct Device;
struct Driver;
class StreamOrder;    // work_scheduler.h
class WorkScheduler;  // work_scheduler.h

// A place in a stream: behind its first `count` operations. Reached for good once they are done.
struct StreamPoint {
  std::shared_ptr<StreamOrder> order;
  uint64_t count = 0;
};

// One recording of an event. Waits refer to the recording that was the latest when they were
// called; recording the event again makes a new one.
struct EventMark {
  StreamPoint point;
  CUctx_st* context = nullptr;
  // Host time at which the stream arrived; set before the point counts as reached.
  std::chrono::steady_clock::time_point time;
};

}  // namespace ops_debug::emulator

// Stream 0 and the per-thread streams are objects of their context; they have no handle.
struct CUstream_st {
  CUctx_st* context = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<ops_debug::emulator::StreamOrder> order;
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes;
};

struct CUctx_st {
  ops_debug::emulator::Device* device = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  bool is_primary = false;
  // What a faulting kernel left behind; returned by every later call in this context, as on a GPU.
  // A worker sets it.
  std::atomic<CUresult> sticky_error{CUDA_SUCCESS};
  CUstream_st legacy_stream;
  std::map<uint64_t, CUstream_st> thread_streams;  // by ThreadNumber()
  std::set<CUctx_st*> peers;                       // contexts whose memory this one may access
  std::map<CUlimit, size_t> limits;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<ops_debug::emulator::EventMark> mark;  // nullptr: never recorded
};

struct CUmod_st;
struct CUlib_st;

// A kernel of one module in one context.
struct CUfunc_st {
  CUmod_st* module = nullptr;
  std::string name;
  const ops_debug::emulator::Kernel* kernel = nullptr;
  int max_dynamic_shared_bytes = 48 * 1024;
  int preferred_shared_carveout = -1;
  bool non_portable_clusters = false;
  int cluster_policy = 0;
  ops_debug::emulator::Dim3 required_cluster{0, 0, 0};  // by cuFuncSetAttribute; zeros: none
};

struct CUmod_st {
  CUctx_st* context = nullptr;
  CUlib_st* library = nullptr;  // set if the module is a library's image in `context`
  std::unique_ptr<ops_debug::emulator::Program> program;
  std::map<std::string, CUfunc_st*> functions;  // made on demand; owned by Device::functions
};

// A kernel of a library, independent of contexts.
struct CUkern_st {
  CUlib_st* library = nullptr;
  std::string name;
  std::map<CUfunction_attribute, int> attributes;  // what cuKernelSetAttribute gave
};

struct CUlib_st {
  std::map<const ops_debug::emulator::Device*, std::string> ptx;  // what each device can run of it
  std::vector<std::string> kernel_names;
  // Loaded at once, so that errors show early; becomes the module of the first context of that
  // device that uses the library.
  std::unique_ptr<ops_debug::emulator::Program> unclaimed;
  ops_debug::emulator::Device* unclaimed_device = nullptr;
  std::map<CUctx_st*, CUmod_st*> modules;
  std::map<std::string, CUkern_st*> kernels;  // made on demand; owned by Device::kernels
};

struct CUmemPoolHandle_st {
  ops_debug::emulator::Device* device = nullptr;
  bool is_default = false;
  uint64_t release_threshold_bytes = 0;
  uint64_t used_bytes = 0, used_high_bytes = 0;
  uint64_t cached_bytes = 0, reserved_high_bytes = 0;
  int reuse_follow_event = 1, reuse_opportunistic = 1, reuse_internal = 1;
  // Freed in stream order but still mapped, by size: a GPU's pool keeps memory until the next
  // synchronisation.
  std::multimap<uint64_t, uint64_t> cached;  // size in bytes -> address
  // Freed by streams that have not got there yet: what comes later in the same stream may have it.
  struct PendingFree {
    const ops_debug::emulator::StreamOrder* order;
    uint64_t address;
  };
  std::vector<PendingFree> pending_frees;
  std::set<int> accessible_from;  // ordinals of the other devices that cuMemPoolSetAccess let in
};

namespace ops_debug::emulator {

enum class AllocationKind : uint8_t { kDevice, kManaged, kPinnedHost, kRegisteredHost, kPool };

// Where managed memory should be, as far as a program can ask for it again.
struct MemoryAdvice {
  bool read_mostly = false;
  CUmemLocation preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemLocation last_prefetch = {CU_MEM_LOCATION_TYPE_INVALID, 0};
  std::set<int> accessed_by;  // device ordinals; CU_DEVICE_CPU for the host
};

struct Allocation {
  AllocationKind kind = AllocationKind::kDevice;
  uint64_t size_bytes = 0;
  uint64_t id = 0;
  CUctx_st* context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned host_flags = 0;
  bool syncs_memops = false;
  bool is_freed = false;  // cuMemFreeAsync has been called, its stream has not got there yet
  // kManaged: what the program has advised, from each offset on to the next one.
  std::map<uint64_t, MemoryAdvice> advice;
};

// One emulated GPU.
struct Device {
  Device(Driver& its_driver, DeviceMemory::Reach reach) : driver(its_driver), memory(reach) {}

  Driver& driver;
  int ordinal = 0;
  DeviceModel model;
  DeviceMemory memory;
  uint64_t total_memory_bytes = 0;

  CUctx_st* primary = nullptr;  // nullptr: not active
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool current_pool = nullptr;
};

// What all devices of the process share.
struct Driver {
  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<WorkScheduler> scheduler;
  uint64_t next_id = 1;

  HandleTable<CUctx_st> contexts;
  HandleTable<CUstream_st> streams;
  HandleTable<CUevent_st> events;
  HandleTable<CUmod_st> modules;
  HandleTable<CUfunc_st> functions;
  HandleTable<CUlib_st> libraries;
  HandleTable<CUkern_st> kernels;
  HandleTable<CUmemPoolHandle_st> pools;

  std::map<uint64_t, Allocation> allocations;  // by address

  // The allocation that holds [address, address + size_bytes), module variables excepted; end() if
  // none.
  std::map<uint64_t, Allocation>::iterator FindAllocation(uint64_t address, uint64_t size_bytes);

  // nullptr if there is no such device.
  Device* FindDevice(CUdevice ordinal) const {
    return ordinal >= 0 && size_t(ordinal) < devices.size() ? devices[size_t(ordinal)].get()
                                                            : nullptr;
  }
};

// The process's driver; created by cuInit, never destroyed (programs call the driver from atexit
// handlers).
Driver& TheDriver();
// False as well in a child that was forked after cuInit: as with NVIDIA's driver, CUDA cannot be
// used there.
bool Initialised();
// The process exits and has stopped waiting for the devices: they may still run, so nothing that
// they use can be freed any more.
bool IsDeinitialised(const Driver& driver);

// The calling thread's context stack.
using ContextStackType = ThreadStack<CUctx_st*, 64>;
ContextStackType& ContextStack();
// The current context; nullptr if there is none or it has been destroyed.
CUctx_st* CurrentContext();

inline bool IsDevice(CUdevice ordinal) { return TheDriver().FindDevice(ordinal) != nullptr; }

// Distinguishes the threads that ever called the driver.
uint64_t ThreadNumber();

// Set while a thread runs a host function of a stream, which may not call the driver.
bool& InHostFunction();
// Calls of InDriver that are under way on this thread.
int& CallDepth();
// With a schedule seed: does what the last calls allowed to be done early.
void SettleSchedule(Driver& driver);

// The default streams' ids are fixed; created streams count on from the driver's ids behind them.
inline constexpr uint64_t kLegacyStreamId = 1, kPerThreadStreamId = 2, kFirstStreamId = 16;

// Every entry point runs through one of those below: nothing throws into the program.
template <class Body>
CUresult Guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

class CallScope {
 public:
  CallScope() { ++CallDepth(); }
  ~CallScope() { --CallDepth(); }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

// body(Driver&) with the lock held.
template <class Body>
CUresult InDriver(Body body) noexcept {
  return Guarded([&]() -> CUresult {
    if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
    if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
    Driver& driver = TheDriver();
    CUresult result = CUDA_SUCCESS;
    {
      const CallScope call;
      const std::lock_guard<std::recursive_mutex> lock(driver.mutex);
      if (IsDeinitialised(driver)) return CUDA_ERROR_DEINITIALIZED;
      result = body(driver);
    }
    if (CallDepth() == 0) SettleSchedule(driver);
    return result;
  });
}

// body(Device&) with the lock held, for the current context's device or else the first one: for
// what is the same on all of them.
template <class Body>
CUresult OnDevice(Body body) noexcept {
  return InDriver([&](Driver& driver) -> CUresult {
    CUctx_st* context = CurrentContext();
    return body(context != nullptr ? *context->device : *driver.devices.front());
  });
}

// body(Device&) with the lock held, for the device of that ordinal.
template <class Body>
CUresult OnDevice(CUdevice ordinal, Body body) noexcept {
  return InDriver([&](Driver& driver) -> CUresult {
    Device* device = driver.FindDevice(ordinal);
    return device != nullptr ? body(*device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

// body(Device&, CUctx_st&) with the lock held and a healthy current context.
template <class Body>
CUresult InContext(Body body) noexcept {
  return InDriver([&](Driver&) -> CUresult {
    CUctx_st* context = CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->sticky_error != CUDA_SUCCESS) return context->sticky_error;
    return body(*context->device, *context);
  });
}

// What `handle` names for the calling thread in `context`, the default streams included; nullptr if
// nothing. A stream of another context is found as well: look at its context.
CUstream_st* FindStream(Driver& driver, CUctx_st& context, CUstream handle);

// CUDA_SUCCESS if `stream` is a live stream of `context` or one of the default streams.
CUresult CheckStream(const Device& device, const CUctx_st& context, CUstream stream);

// What a host thread that waited for `context` may rely on: pools give back what they hold beyond
// their threshold.
void FinishWait(Device& device);

}  // namespace ops_debug::emulator
