// From module to kernel handle, and what a program sets on a kernel: the twin
// gets the same. Enumeration hides twins.
#include <vector>

#include "interposer/hooks.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {
namespace {

// The twins of a handle whose module is instrumented. Fetching them here keeps the order of
// settings.
std::vector<CUfunction> TwinsOfHandle(CUfunction handle) {
  std::vector<CUfunction> twins;
  const FunctionPointer function = FindFunction(handle);
  if (!function) return twins;
  for (const CUfunction twin : {TwinOf(*function), LeanTwinOf(*function)}) {
    if (twin) twins.push_back(twin);
  }
  return twins;
}

CUkernel AsKernel(CUfunction function) { return reinterpret_cast<CUkernel>(function); }

uint64_t TwinCount(const ModulePointer& module) {
  uint64_t count = 0;
  for (const shadow::KernelPlan& plan : module->code.kernels)
    count += (plan.twin.empty() ? 0u : 1u) + (plan.lean_twin.empty() ? 0u : 1u);
  return count;
}

// Device functions made visible to the driver by the rewriting are not entries,
// so twins are all there is to hide.
template <class Handle, class GetName, class Register>
unsigned int KeepOriginals(const std::vector<Handle>& all, Handle* out, unsigned int room,
                           GetName get_name, Register register_handle) {
  unsigned int kept = 0;
  for (const Handle handle : all) {
    const char* name = nullptr;
    if (get_name(&name, handle) == CUDA_SUCCESS && name) {
      if (IsTwinName(name)) continue;
      register_handle(handle, name);
    }
    if (kept < room) out[kept++] = handle;
  }
  return kept;
}

}  // namespace

OPS_DEBUG_HOOK(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name) {
  const CUresult result = real(function, module, name);
  if (result == CUDA_SUCCESS) RegisterFunction(*function, module, name);
  return result;
}

OPS_DEBUG_HOOK(cuLibraryGetKernel, CUkernel* kernel, CUlibrary library, const char* name) {
  const CUresult result = real(kernel, library, name);
  if (result == CUDA_SUCCESS) RegisterKernel(*kernel, library, name);
  return result;
}

OPS_DEBUG_HOOK(cuKernelGetFunction, CUfunction* function, CUkernel kernel) {
  const CUresult result = real(function, kernel);
  if (result == CUDA_SUCCESS) RegisterKernelFunction(*function, kernel);
  return result;
}

OPS_DEBUG_HOOK(cuLibraryGetModule, CUmodule* module, CUlibrary library) {
  const CUresult result = real(module, library);
  if (result == CUDA_SUCCESS) {
    if (const ModulePointer found = FindLibrary(library)) {
      CUcontext context = nullptr;
      OPS_DEBUG_REAL(cuCtxGetCurrent)(&context);
      RegisterModule(*module, context, found);
    }
  }
  return result;
}

// From a kernel to the module that holds it: the program may ask that for other kernels.
OPS_DEBUG_HOOK(cuFuncGetModule, CUmodule* module, CUfunction function) {
  const CUresult result = real(module, function);
  if (result != CUDA_SUCCESS || FindModule(*module)) return result;
  const FunctionPointer found = FindFunction(function);
  if (found && found->module->library) RegisterModule(*module, found->context, found->module);
  return result;
}

// Lazy loading: what the program loads ahead, so that a launch does not wait for it, is the twin.
OPS_DEBUG_HOOK(cuFuncLoad, CUfunction function) {
  const CUresult result = real(function);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(function)) OPS_DEBUG_REAL(cuFuncLoad)(twin);
  }
  return result;
}

OPS_DEBUG_HOOK(cuModuleGetFunctionCount, unsigned int* count, CUmodule module) {
  const CUresult result = real(count, module);
  const ModulePointer found = FindModule(module);
  if (result == CUDA_SUCCESS && found && found->instrumented)
    *count -= static_cast<unsigned int>(TwinCount(found));
  return result;
}

OPS_DEBUG_HOOK(cuLibraryGetKernelCount, unsigned int* count, CUlibrary library) {
  const CUresult result = real(count, library);
  const ModulePointer found = FindLibrary(library);
  if (result == CUDA_SUCCESS && found && found->instrumented)
    *count -= static_cast<unsigned int>(TwinCount(found));
  return result;
}

OPS_DEBUG_HOOK(cuModuleEnumerateFunctions, CUfunction* functions, unsigned int room,
               CUmodule module) {
  const ModulePointer found = FindModule(module);
  if (!found || !functions) return real(functions, room, module);
  unsigned int total = 0;
  CUresult result = OPS_DEBUG_REAL(cuModuleGetFunctionCount)(&total, module);
  if (result != CUDA_SUCCESS) return real(functions, room, module);
  std::vector<CUfunction> all(total);
  result = real(all.data(), total, module);
  if (result != CUDA_SUCCESS) return result;
  KeepOriginals(
      all, functions, room, OPS_DEBUG_REAL(cuFuncGetName),
      [&](CUfunction function, const char* name) { RegisterFunction(function, module, name); });
  return result;
}

OPS_DEBUG_HOOK(cuLibraryEnumerateKernels, CUkernel* kernels, unsigned int room, CUlibrary library) {
  const ModulePointer found = FindLibrary(library);
  if (!found || !kernels) return real(kernels, room, library);
  unsigned int total = 0;
  CUresult result = OPS_DEBUG_REAL(cuLibraryGetKernelCount)(&total, library);
  if (result != CUDA_SUCCESS) return real(kernels, room, library);
  std::vector<CUkernel> all(total);
  result = real(all.data(), total, library);
  if (result != CUDA_SUCCESS) return result;
  KeepOriginals(all, kernels, room, OPS_DEBUG_REAL(cuKernelGetName),
                [&](CUkernel kernel, const char* name) { RegisterKernel(kernel, library, name); });
  return result;
}

OPS_DEBUG_HOOK(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value) {
  const CUresult result = real(function, attribute, value);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(function)) {
      OPS_DEBUG_REAL(cuFuncSetAttribute)(twin, attribute, value);
    }
  }
  return result;
}

OPS_DEBUG_HOOK(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel kernel,
               CUdevice device) {
  const CUresult result = real(attribute, value, kernel, device);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(reinterpret_cast<CUfunction>(kernel))) {
      OPS_DEBUG_REAL(cuKernelSetAttribute)
      (attribute, value, AsKernel(twin), device);
    }
  }
  return result;
}

OPS_DEBUG_HOOK(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache config) {
  const CUresult result = real(function, config);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(function))
      OPS_DEBUG_REAL(cuFuncSetCacheConfig)(twin, config);
  }
  return result;
}

OPS_DEBUG_HOOK(cuKernelSetCacheConfig, CUkernel kernel, CUfunc_cache config, CUdevice device) {
  const CUresult result = real(kernel, config, device);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(reinterpret_cast<CUfunction>(kernel))) {
      OPS_DEBUG_REAL(cuKernelSetCacheConfig)(AsKernel(twin), config, device);
    }
  }
  return result;
}

OPS_DEBUG_HOOK(cuFuncSetSharedMemConfig, CUfunction function, CUsharedconfig config) {
  const CUresult result = real(function, config);
  if (result == CUDA_SUCCESS) {
    for (const CUfunction twin : TwinsOfHandle(function))
      OPS_DEBUG_REAL(cuFuncSetSharedMemConfig)(twin, config);
  }
  return result;
}

}  // namespace ops_debug::interposer
