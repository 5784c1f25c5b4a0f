// A libsanitizer-public.so for tests: remembers what was asked of it, and begins launches when
// told.
#pragma once

#include <sanitizer_callbacks.h>
#include <sanitizer_patching.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ops_debug::interposer::fake {

struct Sanitizer {
  // What happened.
  std::vector<std::vector<std::byte>> patch_images;
  std::vector<CUmodule> patched;                                // in order
  std::map<CUmodule, std::map<int, std::string>> instructions;  // class -> device function
  std::vector<std::pair<CUfunction, uint64_t>> user_data;       // of launches
  // What the test decides.
  SanitizerResult patch_result = SANITIZER_SUCCESS;
  std::map<std::string, std::pair<uint64_t, uint64_t>> places;  // function -> pc, size

  Sanitizer_CallbackFunc callback = nullptr;

  // Virtual: the test finds the library's object at run time and is not linked with it.
  virtual ~Sanitizer() = default;
  virtual void Begin(CUfunction function) = 0;
  virtual void Loaded(CUcontext context, CUmodule module, const std::string& cubin) = 0;
  virtual void Unloading(CUmodule module) = 0;
};

// Exported by the library as `ops_debug_fake_sanitizer`.
using FindSanitizer = Sanitizer* (*)();

}  // namespace ops_debug::interposer::fake
