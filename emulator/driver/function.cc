// Names, parameters and attributes of functions and of library kernels.
#include "emulator/driver/function.h"

#include <algorithm>
#include <optional>

#include "emulator/driver/limits.h"
#include "emulator/driver/module.h"

namespace ops_debug::emulator {

const KernelAttributes& Attributes(const CUfunc_st& function) {
  return function.module->program->Attributes(*function.kernel);
}

namespace {

std::optional<int> GetAttribute(const Device& device, const CUfunc_st& function,
                                CUfunction_attribute attribute) {
  const KernelAttributes& attributes = Attributes(function);
  const int version = int(device.model.compute_major * 10 + device.model.compute_minor);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return int(attributes.max_threads_per_block);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return int(attributes.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return int(attributes.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return int(attributes.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return version;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return function.max_dynamic_shared_bytes;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return function.preferred_shared_carveout;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return attributes.cluster_must_be_set ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return int(std::max(attributes.required_cluster.x, function.required_cluster.x));
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return int(std::max(attributes.required_cluster.y, function.required_cluster.y));
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return int(std::max(attributes.required_cluster.z, function.required_cluster.z));
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return function.non_portable_clusters ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return function.cluster_policy;
    default:
      return std::nullopt;
  }
}

// What the kernel was compiled with stands: only the same value can be set again.
CUresult RequireCluster(CUfunc_st& function, uint32_t Dim3::*dimension, int value) {
  const uint32_t fixed = Attributes(function).required_cluster.*dimension;
  if (value < 0 || (fixed != 0 && fixed != uint32_t(value))) return CUDA_ERROR_INVALID_VALUE;
  if (fixed == 0) function.required_cluster.*dimension = uint32_t(value);
  return CUDA_SUCCESS;
}

CUresult SetAttribute(const Device& device, CUfunc_st& function, CUfunction_attribute attribute,
                      int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int64_t total = int64_t(value) + Attributes(function).static_shared_bytes;
      if (value < 0 || total > device.model.shared_bytes_per_block_optin) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      function.max_dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function.preferred_shared_carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return RequireCluster(function, &Dim3::x, value);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return RequireCluster(function, &Dim3::y, value);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return RequireCluster(function, &Dim3::z, value);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function.non_portable_clusters = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
      function.cluster_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// body(Device&, CUfunc_st&) for a CUfunction or a CUkernel in the current context.
template <class Handle, class Body>
CUresult WithFunction(Handle handle, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUfunc_st* function = nullptr;
    const CUresult status =
        ResolveFunction(device, context, reinterpret_cast<CUfunction>(handle), &function);
    if (status != CUDA_SUCCESS) return status;
    return body(device, *function);
  });
}

CUresult ParameterInfo(const CUfunc_st& function, size_t index, size_t* offset, size_t* bytes) {
  const KernelAttributes& attributes = Attributes(function);
  if (offset == nullptr || index >= attributes.parameter_offsets.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *offset = attributes.parameter_offsets[index];
  if (bytes != nullptr) *bytes = attributes.parameter_sizes[index];
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) -> CUresult {
    const std::optional<int> found = GetAttribute(device, function, attribute);
    if (value == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
    *value = *found;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) {
    return SetAttribute(device, function, attribute, value);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return WithFunction(handle, [](Device&, CUfunc_st&) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return WithFunction(handle, [](Device&, CUfunc_st&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* result, CUfunction handle) {
  return WithFunction(handle, [&](Device&, CUfunc_st& function) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = function.module;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return WithFunction(handle, [&](Device&, CUfunc_st& function) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = function.name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return WithFunction(handle, [&](Device&, CUfunc_st& function) {
    return ParameterInfo(function, index, offset, bytes);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  return WithFunction(handle, [&](Device&, CUfunc_st&) -> CUresult {
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction handle) {
  return WithFunction(handle, [](Device&, CUfunc_st&) { return CUDA_SUCCESS; });
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  return OnDevice([&](Device& device) -> CUresult {
    const CUkern_st* kernel = device.driver.kernels.Find(handle);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  return WithFunction(handle, [&](Device&, CUfunc_st& function) {
    return ParameterInfo(function, index, offset, bytes);
  });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) {
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(handle));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) {
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return WithFunction(handle, [&](Device& device, CUfunc_st& function) -> CUresult {
    const CUresult status = SetAttribute(device, function, attribute, value);
    // Remembered with the kernel, so that its functions in other contexts get it too.
    CUkern_st* kernel = device.driver.kernels.Find(handle);
    if (status == CUDA_SUCCESS && kernel != nullptr) kernel->attributes[attribute] = value;
    return status;
  });
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache, CUdevice ordinal) {
  if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return WithFunction(handle, [](Device&, CUfunc_st&) { return CUDA_SUCCESS; });
}

}  // extern "C"
