// Contexts: the primary one that run-time programs share, and those that driver programs create. A
// context owns its modules, streams, events and memory, and the sticky error of a faulted kernel;
// all contexts of a device share its memory.
#include "emulator/driver/context.h"

#include <algorithm>

#include "emulator/driver/array.h"
#include "emulator/driver/capture.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/module.h"
#include "emulator/driver/peer.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {
namespace {

constexpr unsigned kApiVersion = 3020;  // what cuCtxGetApiVersion has said since cuCtxCreate_v2
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

// Calls that need a current context but work in a faulted one too.
template <class Body>
CUresult WithCurrent(Body body) {
  return InDriver([&](Driver&) -> CUresult {
    CUctx_st* context = CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return body(*context);
  });
}

// body(const CUctx_st&) for `handle`, or the current context if it is null.
template <class Body>
CUresult WithContext(CUcontext handle, CUresult if_none, Body body) {
  return InDriver([&](Driver& driver) -> CUresult {
    const CUctx_st* context = handle != nullptr ? driver.contexts.Find(handle) : CurrentContext();
    return context != nullptr ? body(*context) : if_none;
  });
}

CUresult Create(CUcontext* result, unsigned flags, CUdevice ordinal) {
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    if (result == nullptr || (flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUctx_st* context = NewContext(device, flags, false);
    if (!ContextStack().Push(context)) {
      device.driver.contexts.Remove(context);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *result = context;
    return CUDA_SUCCESS;
  });
}

CUresult Synchronize(CUcontext handle) {
  CUctx_st* context = nullptr;
  const auto find = [&](Driver& driver) -> CUresult {
    context = driver.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return context->sticky_error;
  };
  const CUresult status = InDriver([&](Driver& driver) -> CUresult {
    const CUresult found = find(driver);
    return found == CUDA_SUCCESS ? RefuseWaiting(*context) : found;
  });
  if (status != CUDA_SUCCESS) return status;
  WaitForContext(*context);
  return InDriver([&](Driver& driver) -> CUresult {
    const CUresult found = find(driver);
    if (found == CUDA_SUCCESS) FinishWait(*context->device);
    return found;
  });
}

}  // namespace

CUctx_st* NewContext(Device& device, unsigned flags, bool is_primary) {
  auto context = std::make_unique<CUctx_st>();
  context->device = &device;
  context->id = device.driver.next_id++;
  context->flags = flags;
  context->is_primary = is_primary;
  context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                     {CU_LIMIT_PRINTF_FIFO_SIZE, 8 << 20},
                     {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                     {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                     {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                     {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  CUstream_st& legacy = context->legacy_stream;
  legacy.context = context.get();
  legacy.id = kLegacyStreamId;
  legacy.order = std::make_shared<StreamOrder>(context.get(), /*is_blocking=*/false);
  return device.driver.contexts.Add(std::move(context));
}

void ClearContext(CUctx_st& context) {
  Driver& driver = context.device->driver;
  UnloadModulesOf(*context.device, context);
  ForgetCapturesOf(context);
  DestroyArraysOf(context);
  driver.streams.RemoveIf([&](const CUstream_st& stream) { return stream.context == &context; });
  driver.events.RemoveIf([&](const CUevent_st& event) { return event.context == &context; });
  context.thread_streams.clear();
  for (auto it = driver.allocations.begin(); it != driver.allocations.end();) {
    const auto next = std::next(it);
    // Pools belong to the device: their memory outlives a context.
    if (it->second.context == &context && it->second.kind != AllocationKind::kPool) {
      ReleaseAllocation(driver, it);
    }
    it = next;
  }
  ForgetPeer(driver, context);
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuCtxCreate_v2(CUcontext* result, unsigned int flags, CUdevice ordinal) {
  return Create(result, flags, ordinal);
}

CUresult cuCtxCreate_v3(CUcontext* result, CUexecAffinityParam*, int affinities, unsigned int flags,
                        CUdevice ordinal) {
  if (affinities != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return Create(result, flags, ordinal);
}

CUresult cuCtxCreate_v4(CUcontext* result, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice ordinal) {
  if (parameters != nullptr &&
      (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Create(result, flags, ordinal);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return AfterDraining(handle, [](Driver& driver, CUctx_st& context) -> CUresult {
    if (context.is_primary) return CUDA_ERROR_INVALID_CONTEXT;
    ContextStackType& stack = ContextStack();
    if (!stack.Empty() && stack.Top() == &context) stack.Pop();
    ClearContext(context);
    driver.contexts.Remove(&context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return InDriver([&](Driver& driver) -> CUresult {
    CUctx_st* context = driver.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return ContextStack().Push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* popped) {
  return InDriver([&](Driver&) -> CUresult {
    ContextStackType& stack = ContextStack();
    if (stack.Empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (popped != nullptr) *popped = stack.Top();
    stack.Pop();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return InDriver([&](Driver& driver) -> CUresult {
    ContextStackType& stack = ContextStack();
    if (handle == nullptr) {
      if (!stack.Empty()) stack.Pop();
      return CUDA_SUCCESS;
    }
    CUctx_st* context = driver.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.Empty()) {
      stack.Push(context);
    } else {
      stack.Top() = context;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* result) {
  return InDriver([&](Driver&) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = CurrentContext();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* result) {
  return WithCurrent([&](CUctx_st& context) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = context.device->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* result, CUcontext handle) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithContext(handle, CUDA_ERROR_INVALID_CONTEXT, [&](const CUctx_st& context) {
    *result = context.device->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {  // NOLINT(google-runtime-int): ABI
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithContext(handle, CUDA_ERROR_CONTEXT_IS_DESTROYED, [&](const CUctx_st& context) {
    *id = context.id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return WithCurrent([&](CUctx_st& context) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return WithCurrent([&](CUctx_st& context) -> CUresult {
    if ((flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithContext(handle, CUDA_ERROR_INVALID_CONTEXT, [&](const CUctx_st&) {
    *version = kApiVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle != nullptr) return Synchronize(handle);
  return Synchronize(ContextStack().Empty() ? nullptr : ContextStack().Top());
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return InContext([&](Device&, CUctx_st& context) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto it = context.limits.find(limit);
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = it->second;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return InContext([&](Device&, CUctx_st& context) -> CUresult {
    const auto it = context.limits.find(limit);
    if (it == context.limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    const CUresult status = RefuseUnsafe();
    if (status != CUDA_SUCCESS) return status;
    it->second = value;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return InContext([&](Device&, CUctx_st& context) -> CUresult {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = context.cache_config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return InContext([&](Device&, CUctx_st& context) {
    context.cache_config = config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  return InContext([&](Device&, CUctx_st& context) -> CUresult {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = context.shared_config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return InContext([&](Device&, CUctx_st& context) {
    context.shared_config = config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return InContext([&](Device&, CUctx_st&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxResetPersistingL2Cache(void) {
  return InContext([](Device&, CUctx_st&) { return CUDA_SUCCESS; });
}

}  // extern "C"

OPS_DEBUG_FIRST_ABI(cuCtxDestroy, cuCtxDestroy_v2)
OPS_DEBUG_FIRST_ABI(cuCtxPushCurrent, cuCtxPushCurrent_v2)
OPS_DEBUG_FIRST_ABI(cuCtxPopCurrent, cuCtxPopCurrent_v2)
