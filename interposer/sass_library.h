// NVIDIA's Sanitizer API, loaded at run time: where its library may be, and its functions.
#pragma once

#include <string>
#include <vector>

#if OPS_DEBUG_HAVE_SANITIZER_API
#include <sanitizer_callbacks.h>
#include <sanitizer_memory.h>
#include <sanitizer_patching.h>
#include <sanitizer_result.h>
#endif

namespace ops_debug::interposer {

// What the search goes by; a parameter so that it can be tested.
struct SanitizerSurroundings {
  std::string named;                        // by kEnvSanitizerLibrary; then nothing else is tried
  std::vector<std::string> cuda_homes;      // CUDA_HOME, CUDA_PATH, the folder above nvcc's
  std::vector<std::string> system_homes;    // /usr/local/cuda, /usr/local/cuda-13.0 …
  std::vector<std::string> python_folders;  // site-packages of the Python in use
  std::string own_library;                  // path of the interposer: its toolkit may lie beside it
};
SanitizerSurroundings LookAround();

// Files to try, best first, each once. They need not exist.
std::vector<std::string> SanitizerLibraryCandidates(const SanitizerSurroundings& around);

#if OPS_DEBUG_HAVE_SANITIZER_API

#define OPS_DEBUG_SANITIZER_FUNCTIONS(FUNCTION)                                                 \
  FUNCTION(sanitizerSubscribe)                                                                  \
  FUNCTION(sanitizerUnsubscribe)                                                                \
  FUNCTION(sanitizerEnableCallback)                                                             \
  FUNCTION(sanitizerAddPatches)                                                                 \
  FUNCTION(sanitizerPatchInstructions)                                                          \
  FUNCTION(sanitizerPatchModule)                                                                \
  FUNCTION(sanitizerSetLaunchCallbackData)                                                      \
  FUNCTION(sanitizerGetFunctionPcAndSize)                                                       \
  FUNCTION(sanitizerGetResultString)                                                            \
  /* Not called. Libraries without it (CUDA before 12.1) have other structures in callbacks. */ \
  FUNCTION(sanitizerSetDeviceGraphData)

struct SanitizerApi {
#define OPS_DEBUG_FUNCTION(name) decltype(&::name) name = nullptr;
  OPS_DEBUG_SANITIZER_FUNCTIONS(OPS_DEBUG_FUNCTION)
#undef OPS_DEBUG_FUNCTION
  void* library = nullptr;
};

// Opens the file and finds all functions. False: `*failure` says why not, nothing stays loaded.
bool LoadSanitizerApi(const std::string& path, SanitizerApi* api, std::string* failure);
void UnloadSanitizerApi(SanitizerApi* api);

#endif

}  // namespace ops_debug::interposer
