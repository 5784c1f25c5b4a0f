// Every call that loads code, and the calls that unload it.
#include <fstream>
#include <iterator>

#include "interposer/event_sender.h"
#include "interposer/fault_drain.h"
#include "interposer/hooks.h"
#include "interposer/launch_record.h"
#include "interposer/module_load.h"

namespace ops_debug::interposer {
namespace {

void Adopt(CUmodule* handle, ModulePointer module) {
  if (!module) return;
  CUcontext context = nullptr;
  OPS_DEBUG_REAL(cuCtxGetCurrent)(&context);
  module->module = *handle;
  RegisterModule(*handle, context, module);
}

void Adopt(CUlibrary* handle, ModulePointer module) {
  if (!module) return;
  module->library = *handle;
  RegisterLibrary(*handle, module);
}

// A file that cannot be read is the driver's to complain about.
bool ReadFile(const char* name, std::string* bytes) {
  if (!name) return false;
  std::ifstream file(name, std::ios::binary);
  if (!file) return false;
  bytes->assign(std::istreambuf_iterator<char>(file), {});
  return !file.bad();
}

// For calls that have no options, or load from elsewhere.
CUresult LoadModuleText(CUmodule* handle, const char* image, JitOptions& options) {
  if (options.count() == 0) return OPS_DEBUG_REAL_FOR_PROGRAM(cuModuleLoadData)(handle, image);
  return OPS_DEBUG_REAL_FOR_PROGRAM(cuModuleLoadDataEx)(handle, image, options.count(),
                                                        options.options(), options.values());
}

}  // namespace

OPS_DEBUG_HOOK(cuModuleLoadData, CUmodule* handle, const void* image) {
  if (!handle || !WatchesImages()) return real(handle, image);
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(handle, Load({.api = "cuModuleLoadData",
                      .image = ReadImage(image, CurrentTarget()),
                      .module = handle,
                      .load_text =
                          [&](const char* text, JitOptions& options) {
                            return options.unchanged() ? real(handle, text)
                                                       : LoadModuleText(handle, text, options);
                          },
                      .load_original = [&] { return real(handle, image); }},
                     &result));
  return result;
}

OPS_DEBUG_HOOK(cuModuleLoadFatBinary, CUmodule* handle, const void* image) {
  if (!handle || !WatchesImages()) return real(handle, image);
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(
      handle,
      Load({.api = "cuModuleLoadFatBinary",
            .image = ReadImage(image, CurrentTarget()),
            .module = handle,
            .load_text = [&](const char* text,
                             JitOptions& options) { return LoadModuleText(handle, text, options); },
            .load_original = [&] { return real(handle, image); }},
           &result));
  return result;
}

OPS_DEBUG_HOOK(cuModuleLoad, CUmodule* handle, const char* file_name) {
  std::string bytes;
  if (!handle || !WatchesImages() || !ReadFile(file_name, &bytes)) return real(handle, file_name);
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(
      handle,
      Load({.api = "cuModuleLoad",
            .image = ReadImageFile(bytes, CurrentTarget(), file_name),
            .module = handle,
            .load_text = [&](const char* text,
                             JitOptions& options) { return LoadModuleText(handle, text, options); },
            .load_original = [&] { return real(handle, file_name); }},
           &result));
  return result;
}

OPS_DEBUG_HOOK(cuModuleLoadDataEx, CUmodule* handle, const void* image, unsigned int count,
               CUjit_option* options, void** values) {
  if (!handle || !WatchesImages()) return real(handle, image, count, options, values);
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(handle, Load({.api = "cuModuleLoadDataEx",
                      .image = ReadImage(image, CurrentTarget()),
                      .module = handle,
                      .option_count = count,
                      .options = options,
                      .option_values = values,
                      .load_text =
                          [&](const char* text, JitOptions& jit) {
                            return jit.unchanged() ? real(handle, text, count, options, values)
                                                   : real(handle, text, jit.count(), jit.options(),
                                                          jit.values());
                          },
                      .load_original = [&] { return real(handle, image, count, options, values); }},
                     &result));
  return result;
}

OPS_DEBUG_HOOK(cuLibraryLoadData, CUlibrary* handle, const void* image, CUjit_option* options,
               void** values, unsigned int count, CUlibraryOption* library_options,
               void** library_values, unsigned int library_count) {
  const auto load_original = [&] {
    return real(handle, image, options, values, count, library_options, library_values,
                library_count);
  };
  if (!handle || !WatchesImages()) return load_original();
  // With this option the driver does not copy the image.
  bool keep_text = false;
  for (unsigned int i = 0; library_options && i < library_count; i++) {
    keep_text = keep_text || library_options[i] == CU_LIBRARY_BINARY_IS_PRESERVED;
  }
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(handle, Load({.api = "cuLibraryLoadData",
                      .image = ReadImage(image, CurrentTarget()),
                      .library = handle,
                      .option_count = count,
                      .options = options,
                      .option_values = values,
                      .load_text =
                          [&](const char* text, JitOptions& jit) {
                            return jit.unchanged()
                                       ? real(handle, text, options, values, count, library_options,
                                              library_values, library_count)
                                       : real(handle, text, jit.options(), jit.values(),
                                              jit.count(), library_options, library_values,
                                              library_count);
                          },
                      .load_original = load_original,
                      .keep_text = keep_text},
                     &result));
  return result;
}

OPS_DEBUG_HOOK(cuLibraryLoadFromFile, CUlibrary* handle, const char* file_name,
               CUjit_option* options, void** values, unsigned int count,
               CUlibraryOption* library_options, void** library_values,
               unsigned int library_count) {
  const auto load_original = [&] {
    return real(handle, file_name, options, values, count, library_options, library_values,
                library_count);
  };
  std::string bytes;
  if (!handle || !WatchesImages() || !ReadFile(file_name, &bytes)) return load_original();
  CUresult result = CUDA_ERROR_UNKNOWN;
  Adopt(handle, Load({.api = "cuLibraryLoadFromFile",
                      .image = ReadImageFile(bytes, CurrentTarget(), file_name),
                      .library = handle,
                      .option_count = count,
                      .options = options,
                      .option_values = values,
                      .load_text =
                          [&](const char* text, JitOptions& jit) {
                            return OPS_DEBUG_REAL_FOR_PROGRAM(cuLibraryLoadData)(
                                handle, text, jit.options(), jit.values(), jit.count(),
                                library_options, library_values, library_count);
                          },
                      .load_original = load_original,
                      .keep_text = true},
                     &result));
  return result;
}

namespace {

// Reports what the instances have to say and frees them. A program unloads code
// that no longer runs.
void Retire(const ModulePointer& module) {
  DrainFaults(DrainDepth::kFinal);
  SendLaunchSummaries();
  std::vector<InstancePointer> instances;
  {
    std::lock_guard lock(module->mutex);
    for (auto& [context, instance] : module->instances) instances.push_back(instance);
    module->instances.clear();
  }
  for (const InstancePointer& instance : instances) {
    if (instance->context->lost) continue;
    InternalCalls calls(*instance->context);
    if (calls.ok()) FreeInstance(*instance);
  }
  if (module->instrumented) Book().RemoveOwner(module->id);
}

}  // namespace

OPS_DEBUG_HOOK(cuModuleUnload, CUmodule handle) {
  const ModulePointer module = FindModule(handle);
  if (!module || module->library) return real(handle);
  if (module->instrumented) DrainFaults(DrainDepth::kFinal);
  const CUresult result = real(handle);
  if (result == CUDA_SUCCESS) {
    ForgetModule(handle);
    Retire(module);
  }
  return result;
}

OPS_DEBUG_HOOK(cuLibraryUnload, CUlibrary handle) {
  const ModulePointer module = FindLibrary(handle);
  if (!module) return real(handle);
  if (module->instrumented) DrainFaults(DrainDepth::kFinal);
  const CUresult result = real(handle);
  if (result == CUDA_SUCCESS) {
    ForgetLibrary(handle);
    Retire(module);
  }
  return result;
}

}  // namespace ops_debug::interposer
