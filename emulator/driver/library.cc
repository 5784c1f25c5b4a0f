// Libraries: code that belongs to no context. A library keeps its PTX; the first use in a context
// loads it there, and its kernels stand for "this function in whatever context is current".
#include <algorithm>
#include <utility>

#include "emulator/driver/capture.h"
#include "emulator/driver/image.h"
#include "emulator/driver/jit_log.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/models.h"
#include "emulator/driver/module.h"
#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

CUresult LibraryModule(Device& device, CUlib_st& library, CUctx_st& context, CUmod_st** module) {
  const auto known = library.modules.find(&context);
  if (known != library.modules.end()) {
    *module = known->second;
    return CUDA_SUCCESS;
  }
  std::unique_ptr<Program> program;
  if (library.unclaimed_device == &device) program = std::move(library.unclaimed);
  if (program == nullptr) {
    const auto ptx = library.ptx.find(&device);
    if (ptx == library.ptx.end()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    std::string why;
    const CUresult status = LoadProgram(device, ptx->second, &program, &why);
    if (status != CUDA_SUCCESS) return status;
  }
  auto loaded = std::make_unique<CUmod_st>();
  loaded->context = &context;
  loaded->library = &library;
  loaded->program = std::move(program);
  *module = device.driver.modules.Add(std::move(loaded));
  library.modules.emplace(&context, *module);
  return CUDA_SUCCESS;
}

CUresult ResolveFunction(Device& device, CUctx_st& context, CUfunction handle,
                         CUfunc_st** function) {
  CUfunc_st* found = device.driver.functions.Find(handle);
  if (found != nullptr) {
    if (found->module->context != &context) return CUDA_ERROR_INVALID_CONTEXT;
    *function = found;
    return CUDA_SUCCESS;
  }
  const CUkern_st* kernel = device.driver.kernels.Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUmod_st* module = nullptr;
  const CUresult status = LibraryModule(device, *kernel->library, context, &module);
  if (status != CUDA_SUCCESS) return status;
  found = FindFunction(device, *module, kernel->name);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  const auto dynamic = kernel->attributes.find(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (dynamic != kernel->attributes.end()) found->max_dynamic_shared_bytes = dynamic->second;
  *function = found;
  return CUDA_SUCCESS;
}

namespace {

CUkern_st* FindKernel(Device& device, CUlib_st& library, const std::string& name) {
  const auto known = library.kernels.find(name);
  if (known != library.kernels.end()) return known->second;
  const bool exists = std::find(library.kernel_names.begin(), library.kernel_names.end(), name) !=
                      library.kernel_names.end();
  if (!exists) return nullptr;
  auto kernel = std::make_unique<CUkern_st>();
  kernel->library = &library;
  kernel->name = name;
  CUkern_st* handle = device.driver.kernels.Add(std::move(kernel));
  library.kernels.emplace(name, handle);
  return handle;
}

template <class Read>
CUresult Load(CUlibrary* result, JitLog log, Read read) {
  return OnDevice([&](Device& device) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = std::make_unique<CUlib_st>();
    std::string ptx, why;
    CUresult status = read(device, &ptx, &why);
    if (status != CUDA_SUCCESS) {
      Say(why);
      log.Error(why);
      return status;
    }
    // The image may be gone when another device needs it.
    for (const auto& other : device.driver.devices) {
      std::string its_ptx = ptx, why_not;
      const bool same = ArchitectureNumber(other->model) == ArchitectureNumber(device.model);
      if (same || read(*other, &its_ptx, &why_not) == CUDA_SUCCESS) {
        library->ptx.emplace(other.get(), std::move(its_ptx));
      }
    }
    library->unclaimed_device = &device;
    status = LoadProgram(device, ptx, &library->unclaimed, &why);
    log.Error(why);
    if (status != CUDA_SUCCESS) return status;
    library->kernel_names = library->unclaimed->KernelNames();
    *result = device.driver.libraries.Add(std::move(library));
    return CUDA_SUCCESS;
  });
}

// body(Device&, CUlib_st&) for a live library.
template <class Body>
CUresult WithLibrary(CUlibrary handle, Body body) {
  return OnDevice([&](Device& device) -> CUresult {
    CUlib_st* library = device.driver.libraries.Find(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(device, *library);
  });
}

CUresult FindVariable(CUlibrary handle, const char* name, CUdeviceptr* address, size_t* bytes) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUlib_st* library = device.driver.libraries.Find(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUmod_st* module = nullptr;
    const CUresult status = LibraryModule(device, *library, context, &module);
    if (status != CUDA_SUCCESS) return status;
    uint64_t found_address = 0, found_bytes = 0;
    if (!module->program->FindVariable(name, &found_address, &found_bytes)) {
      return CUDA_ERROR_NOT_FOUND;
    }
    if (address != nullptr) *address = found_address;
    if (bytes != nullptr) *bytes = found_bytes;
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* result, const void* image, CUjit_option* options,
                           void** values, unsigned int count, CUlibraryOption*, void**,
                           unsigned int) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Load(result, JitLog(count, options, values),
              [&](Device& device, std::string* ptx, std::string* why) {
                return ReadImage(image, device.model, ptx, why);
              });
}

CUresult cuLibraryLoadFromFile(CUlibrary* result, const char* path, CUjit_option* options,
                               void** values, unsigned int count, CUlibraryOption*, void**,
                               unsigned int) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Load(result, JitLog(count, options, values),
              [&](Device& device, std::string* ptx, std::string* why) {
                return ReadImageFile(path, device.model, ptx, why);
              });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  const CUresult status = WithLibrary(handle, [](Device&, CUlib_st&) { return RefuseUnsafe(); });
  if (status != CUDA_SUCCESS) return status;
  for (const auto& device : TheDriver().devices) WaitForDevice(*device);  // its kernels may run
  return WithLibrary(handle, [&](Device& device, CUlib_st& library) {
    while (!library.modules.empty()) UnloadModule(device, *library.modules.begin()->second);
    for (const auto& [name, kernel] : library.kernels) device.driver.kernels.Remove(kernel);
    device.driver.libraries.Remove(&library);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* result, CUlibrary handle, const char* name) {
  return WithLibrary(handle, [&](Device& device, CUlib_st& library) -> CUresult {
    if (result == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = FindKernel(device, library, name);
    return *result != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  return WithLibrary(handle, [&](Device&, CUlib_st& library) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = unsigned(library.kernel_names.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int capacity, CUlibrary handle) {
  return WithLibrary(handle, [&](Device& device, CUlib_st& library) -> CUresult {
    if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const std::string& name : library.kernel_names) {
      if (capacity-- == 0) break;
      *kernels++ = FindKernel(device, library, name);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* result, CUlibrary handle) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUlib_st* library = device.driver.libraries.Find(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return LibraryModule(device, *library, context, result);
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                            const char* name) {
  return FindVariable(handle, name, address, bytes);
}

// Managed variables are ordinary ones here: the host sees all device memory.
CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                             const char* name) {
  return FindVariable(handle, name, address, bytes);
}

CUresult cuKernelGetFunction(CUfunction* result, CUkernel kernel) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return ResolveFunction(device, context, reinterpret_cast<CUfunction>(kernel), result);
  });
}

CUresult cuKernelGetLibrary(CUlibrary* result, CUkernel handle) {
  return OnDevice([&](Device& device) -> CUresult {
    const CUkern_st* kernel = device.driver.kernels.Find(handle);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = kernel->library;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
