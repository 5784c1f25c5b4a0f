// Modules: code loaded into one context, its functions and its global variables.
#include "emulator/driver/module.h"

#include <utility>
#include <vector>

#include "emulator/driver/capture.h"
#include "emulator/driver/image.h"
#include "emulator/driver/jit_log.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/models.h"
#include "emulator/driver/operation.h"
#include "emulator/driver/placement.h"

namespace ops_debug::emulator {
namespace {

// Reads the image with `read(&ptx, &why)` and loads it into the current context.
template <class Read>
CUresult Load(CUmodule* result, JitLog log, Read read) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::string ptx, why;
    CUresult status = read(device, &ptx, &why);
    std::unique_ptr<Program> program;
    if (status == CUDA_SUCCESS) {
      status = LoadProgram(device, ptx, &program, &why);
    } else {
      Say(why);
    }
    log.Error(why);
    if (status != CUDA_SUCCESS) return status;
    auto module = std::make_unique<CUmod_st>();
    module->context = &context;
    module->program = std::move(program);
    *result = device.driver.modules.Add(std::move(module));
    return CUDA_SUCCESS;
  });
}

CUresult LoadData(CUmodule* result, const void* image, const JitLog& log) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Load(result, log, [&](Device& device, std::string* ptx, std::string* why) {
    return ReadImage(image, device.model, ptx, why);
  });
}

// body(Device&, CUmod_st&) for a live module.
template <class Body>
CUresult WithModule(CUmodule handle, Body body) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    CUmod_st* module = device.driver.modules.Find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(device, *module);
  });
}

}  // namespace

CUresult LoadProgram(Device& device, std::string_view ptx, std::unique_ptr<Program>* program,
                     std::string* why) {
  ptx::Result<std::unique_ptr<Program>> loaded =
      Program::Load(ptx, device.memory, TakeVariablePlaces());
  if (loaded.ok()) {
    if (!RunsOn(loaded.value()->Target(), device.model, why)) {
      Say("cannot load a module: " + *why);
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    *program = std::move(loaded.value());
    return CUDA_SUCCESS;
  }
  *why = "PTX " + loaded.error().ToString();
  Say("cannot load a module: " + *why);
  return loaded.error().code == ptx::Diagnostic::Code::kUnsupported ? CUDA_ERROR_NOT_SUPPORTED
                                                                    : CUDA_ERROR_INVALID_PTX;
}

CUfunc_st* FindFunction(Device& device, CUmod_st& module, const std::string& name) {
  const auto known = module.functions.find(name);
  if (known != module.functions.end()) return known->second;
  const Kernel* kernel = module.program->FindKernel(name);
  if (kernel == nullptr) return nullptr;
  auto function = std::make_unique<CUfunc_st>();
  function->module = &module;
  function->name = name;
  function->kernel = kernel;
  const int static_bytes = int(module.program->Attributes(*kernel).static_shared_bytes);
  const int limit_bytes = int(device.model.shared_bytes_per_block);
  function->max_dynamic_shared_bytes = std::max(0, limit_bytes - static_bytes);
  CUfunc_st* handle = device.driver.functions.Add(std::move(function));
  module.functions.emplace(name, handle);
  return handle;
}

void UnloadModule(Device& device, CUmod_st& module) {
  for (const auto& [name, function] : module.functions) device.driver.functions.Remove(function);
  if (module.library != nullptr) module.library->modules.erase(module.context);
  device.driver.modules.Remove(&module);
}

void UnloadModulesOf(Device& device, const CUctx_st& context) {
  std::vector<CUmod_st*> modules;
  device.driver.modules.ForEach([&](CUmod_st& module) {
    if (module.context == &context) modules.push_back(&module);
  });
  for (CUmod_st* module : modules) UnloadModule(device, *module);
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuModuleLoad(CUmodule* result, const char* path) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Load(result, JitLog{}, [&](Device& device, std::string* ptx, std::string* why) {
    return ReadImageFile(path, device.model, ptx, why);
  });
}

CUresult cuModuleLoadData(CUmodule* result, const void* image) {
  return LoadData(result, image, JitLog{});
}

CUresult cuModuleLoadDataEx(CUmodule* result, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  return LoadData(result, image, JitLog(count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule* result, const void* image) {
  return LoadData(result, image, JitLog{});
}

CUresult cuModuleUnload(CUmodule handle) {
  CUcontext context = nullptr;
  const CUresult status = WithModule(handle, [&](Device&, CUmod_st& module) {
    context = module.context;
    return RefuseUnsafe();
  });
  if (status != CUDA_SUCCESS) return status;
  WaitForContext(*context);  // its kernels may run
  return WithModule(handle, [&](Device& device, CUmod_st& module) -> CUresult {
    if (module.library != nullptr) return CUDA_ERROR_NOT_PERMITTED;
    UnloadModule(device, module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* result, CUmodule handle, const char* name) {
  return WithModule(handle, [&](Device& device, CUmod_st& module) -> CUresult {
    if (result == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = FindFunction(device, module, name);
    return *result != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  return WithModule(handle, [&](Device&, CUmod_st& module) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = unsigned(module.program->KernelNames().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int capacity, CUmodule handle) {
  return WithModule(handle, [&](Device& device, CUmod_st& module) -> CUresult {
    if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const std::string& name : module.program->KernelNames()) {
      if (capacity-- == 0) break;
      *functions++ = FindFunction(device, module, name);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                              const char* name) {
  return WithModule(handle, [&](Device&, CUmod_st& module) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint64_t found_address = 0, found_bytes = 0;
    if (!module.program->FindVariable(name, &found_address, &found_bytes)) {
      return CUDA_ERROR_NOT_FOUND;
    }
    if (address != nullptr) *address = found_address;
    if (bytes != nullptr) *bytes = found_bytes;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
