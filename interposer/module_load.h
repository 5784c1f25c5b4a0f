// From an image to loaded code: read it, rewrite its PTX, hand the result to
// the driver, fall back to the original.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interposer/image_reader.h"
#include "interposer/jit_options.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {

// True if loaded code matters at all (checks on, or the null rewrite that measures its own cost).
// Which engine checks it is decided later.
bool WatchesImages();

// How one API call loads.
struct LoadCall {
  std::string api;
  Image image;
  // Where the program wants the handle: one of these is set.
  CUmodule* module = nullptr;
  CUlibrary* library = nullptr;
  // The program's JIT options, if the call has any.
  unsigned int option_count = 0;
  CUjit_option* options = nullptr;
  void** option_values = nullptr;
  // Loads an image in place of the program's: text, or a cubin made from it.
  std::function<CUresult(const char* image, JitOptions& options)> load_text;
  // The call as the program made it.
  std::function<CUresult()> load_original;
  bool keep_text = false;  // the driver refers to the image as long as the module lives
};

// Loads and sends the ModuleLoaded event; `*result` is what the program's call
// returns. On success the module, not yet registered under its handle.
ModulePointer Load(const LoadCall& call, CUresult* result);

// Compute capability of the current context's device, else of device 0.
ImageTarget CurrentTarget();

}  // namespace ops_debug::interposer
