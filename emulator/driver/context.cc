// Contexts: the primary one that run-time programs share, and those that driver programs create. A
// context owns its modules, streams, events and memory, and the sticky error of a faulted kernel;
// all contexts share the one address space of the device.
#include "emulator/driver/context.h"

#include <algorithm>

#include "emulator/driver/module.h"

namespace ops_debug::emulator {
namespace {

constexpr unsigned kApiVersion = 3020;  // what cuCtxGetApiVersion has said since cuCtxCreate_v2
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

CUctx_st* NewContext(Device& device, unsigned flags, bool is_primary) {
  auto context = std::make_unique<CUctx_st>();
  context->id = device.next_id++;
  context->flags = flags;
  context->is_primary = is_primary;
  context->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                     {CU_LIMIT_PRINTF_FIFO_SIZE, 8 << 20},
                     {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                     {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                     {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                     {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  return device.contexts.Add(std::move(context));
}

// Calls that need a current context but work in a faulted one too.
template <class Body>
CUresult WithCurrent(Body body) {
  return OnDevice([&](Device& device) -> CUresult {
    CUctx_st* context = CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return body(device, *context);
  });
}

CUresult Create(CUcontext* result, unsigned flags, CUdevice ordinal) {
  return OnDevice([&](Device& device) -> CUresult {
    if (result == nullptr || (flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    CUctx_st* context = NewContext(device, flags, false);
    if (!ContextStack().Push(context)) {
      device.contexts.Remove(context);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *result = context;
    return CUDA_SUCCESS;
  });
}

void Deactivate(Device& device) {
  if (device.primary == nullptr) return;
  ClearContext(device, *device.primary);
  device.contexts.Remove(device.primary);
  device.primary = nullptr;
}

CUresult Synchronize(CUcontext handle) {
  return OnDevice([&](Device& device) -> CUresult {
    CUctx_st* context = device.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->sticky_error != CUDA_SUCCESS) return context->sticky_error;
    FinishWait(device);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUctx_st* ActivatePrimary(Device& device) {
  if (device.primary == nullptr) device.primary = NewContext(device, device.primary_flags, true);
  return device.primary;
}

void ClearContext(Device& device, CUctx_st& context) {
  UnloadModulesOf(device, context);
  device.streams.RemoveIf([&](const CUstream_st& stream) { return stream.context == &context; });
  device.events.RemoveIf([&](const CUevent_st& event) { return event.context == &context; });
  std::erase_if(device.allocations, [&](const auto& entry) {
    const auto& [address, allocation] = entry;
    // Pools belong to the device: their memory outlives a context.
    if (allocation.context != &context || allocation.kind == AllocationKind::kPool) return false;
    if (allocation.kind == AllocationKind::kRegisteredHost) {
      device.memory.UnregisterHostRange(address);
    } else {
      device.memory.Free(address);
    }
    return true;
  });
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
  return OnDevice([&](Device& device) -> CUresult {
    CUctx_st* context = device.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
    ContextStackType& stack = ContextStack();
    if (!stack.Empty() && stack.Top() == context) stack.Pop();
    ClearContext(device, *context);
    device.contexts.Remove(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return OnDevice([&](Device& device) -> CUresult {
    CUctx_st* context = device.contexts.Find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return ContextStack().Push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* popped) {
  return OnDevice([&](Device&) -> CUresult {
    ContextStackType& stack = ContextStack();
    if (stack.Empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (popped != nullptr) *popped = stack.Top();
    stack.Pop();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return OnDevice([&](Device& device) -> CUresult {
    ContextStackType& stack = ContextStack();
    if (handle == nullptr) {
      if (!stack.Empty()) stack.Pop();
      return CUDA_SUCCESS;
    }
    CUctx_st* context = device.contexts.Find(handle);
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
  return OnDevice([&](Device&) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = CurrentContext();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* result) {
  return WithCurrent([&](Device&, CUctx_st&) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* result, CUcontext handle) {
  return OnDevice([&](Device& device) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUctx_st* context = handle != nullptr ? device.contexts.Find(handle) : CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *result = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {  // NOLINT(google-runtime-int): ABI
  return OnDevice([&](Device& device) -> CUresult {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUctx_st* context = handle != nullptr ? device.contexts.Find(handle) : CurrentContext();
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return WithCurrent([&](Device&, CUctx_st& context) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return WithCurrent([&](Device&, CUctx_st& context) -> CUresult {
    if ((flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return OnDevice([&](Device& device) -> CUresult {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUctx_st* context = handle != nullptr ? device.contexts.Find(handle) : CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *version = kApiVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize(void) {
  if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return Synchronize(CurrentContext());
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  if (!Initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return Synchronize(context != nullptr ? context : CurrentContext());
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

CUresult cuDevicePrimaryCtxRetain(CUcontext* result, CUdevice ordinal) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = ActivatePrimary(device);
    ++device.primary_references;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if (device.primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.primary_references == 0) Deactivate(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if (device.primary == nullptr) return CUDA_SUCCESS;
    // The handle stays valid: whoever retained it goes on with a fresh context.
    ClearContext(device, *device.primary);
    device.primary->sticky_error = CUDA_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    device.primary_flags = flags;
    if (device.primary != nullptr) device.primary->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = device.primary_flags;
    *active = device.primary != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_FIRST_ABI(cuCtxDestroy, cuCtxDestroy_v2)
OPS_DEBUG_FIRST_ABI(cuCtxPushCurrent, cuCtxPushCurrent_v2)
OPS_DEBUG_FIRST_ABI(cuCtxPopCurrent, cuCtxPopCurrent_v2)
OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)
OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)
OPS_DEBUG_FIRST_ABI(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)
