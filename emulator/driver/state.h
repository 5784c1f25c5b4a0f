// The state behind the driver API: one device, its contexts and everything that a handle can name.
//
// CUDA's opaque handle types (CUcontext = CUctx_st*, ...) are defined here as plain data, so
// handles need no casts. One lock guards all of it. Work is executed inside the call that submits
// it, in call order: a legal schedule of every correctly synchronised program. Streams and events
// are still real objects, so that another schedule can come later.
#pragma once

#include <cuda.h>  // with __CUDA_API_VERSION_INTERNAL: every ABI version of every function is declared

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/driver/abi.h"
#include "emulator/driver/handles.h"
#include "emulator/driver/thread_stack.h"
#include "emulator/executor.h"
#include "emulator/memory.h"

struct CUctx_st {
  uint64_t id = 0;
  unsigned flags = 0;
  bool is_primary = false;
  // What a faulting kernel left behind; returned by every later call in this context, as on a GPU.
  CUresult sticky_error = CUDA_SUCCESS;
  std::map<CUlimit, size_t> limits;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  int priority = 0;
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
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
  std::string ptx;
  std::vector<std::string> kernel_names;
  // Loaded at once, so that errors show early; becomes the module of the first context that uses
  // the library.
  std::unique_ptr<ops_debug::emulator::Program> unclaimed;
  std::map<CUctx_st*, CUmod_st*> modules;
  std::map<std::string, CUkern_st*> kernels;  // made on demand; owned by Device::kernels
};

struct CUmemPoolHandle_st {
  bool is_default = false;
  uint64_t release_threshold_bytes = 0;
  uint64_t used_bytes = 0, used_high_bytes = 0;
  uint64_t cached_bytes = 0, reserved_high_bytes = 0;
  int reuse_follow_event = 1, reuse_opportunistic = 1, reuse_internal = 1;
  // Freed in stream order but still mapped, by size: a GPU's pool keeps memory until the next
  // synchronisation.
  std::multimap<uint64_t, uint64_t> cached;  // size in bytes -> address
};

namespace ops_debug::emulator {

enum class AllocationKind : uint8_t { kDevice, kManaged, kPinnedHost, kRegisteredHost, kPool };

struct Allocation {
  AllocationKind kind = AllocationKind::kDevice;
  uint64_t size_bytes = 0;
  uint64_t id = 0;
  CUctx_st* context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned host_flags = 0;
};

struct Device {
  std::recursive_mutex mutex;
  DeviceModel model;
  DeviceMemory memory;
  uint64_t next_id = 1;

  HandleTable<CUctx_st> contexts;
  HandleTable<CUstream_st> streams;
  HandleTable<CUevent_st> events;
  HandleTable<CUmod_st> modules;
  HandleTable<CUfunc_st> functions;
  HandleTable<CUlib_st> libraries;
  HandleTable<CUkern_st> kernels;
  HandleTable<CUmemPoolHandle_st> pools;

  CUctx_st* primary = nullptr;  // nullptr: not active
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool current_pool = nullptr;

  std::map<uint64_t, Allocation> allocations;  // by address

  uint64_t total_memory_bytes = 0;

  // The allocation that holds [address, address + size_bytes), module variables excepted; end() if
  // none.
  std::map<uint64_t, Allocation>::iterator FindAllocation(uint64_t address, uint64_t size_bytes);
};

// The process's device; created by cuInit, never destroyed (programs call the driver from atexit
// handlers).
Device& ThisDevice();
bool Initialised();

// The calling thread's context stack.
using ContextStackType = ThreadStack<CUctx_st*, 64>;
ContextStackType& ContextStack();
// The current context; nullptr if there is none or it has been destroyed.
CUctx_st* CurrentContext();

// `ordinal` names the one device.
inline bool IsDevice(CUdevice ordinal) { return ordinal == 0; }

// Every entry point runs through one of the three below: nothing throws into the program.
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

// body(Device&) with the lock held.
template <class Body>
CUresult OnDevice(Body body) noexcept {
  return Guarded([&]() -> CUresult {
    if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
    Device& device = ThisDevice();
    const std::lock_guard<std::recursive_mutex> lock(device.mutex);
    return body(device);
  });
}

// body(Device&, CUctx_st&) with the lock held and a healthy current context.
template <class Body>
CUresult InContext(Body body) noexcept {
  return OnDevice([&](Device& device) -> CUresult {
    CUctx_st* context = CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->sticky_error != CUDA_SUCCESS) return context->sticky_error;
    return body(device, *context);
  });
}

// CUDA_SUCCESS if `stream` is a live stream of `context` or one of the default streams.
CUresult CheckStream(const Device& device, const CUctx_st& context, CUstream stream);

// What a host thread that waited for `context` may rely on: pools give back what they hold beyond
// their threshold.
void FinishWait(Device& device);

}  // namespace ops_debug::emulator
