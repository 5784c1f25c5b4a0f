// From an image to loaded code: read it, rewrite its PTX, hand the result to
// the driver, fall back to the original.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interposer/image_reader.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {

// True if images are to be rewritten at all (checks on, or the null rewrite
// that measures its own cost).
bool RewritesImages();

// How one API call loads.
struct LoadCall {
  std::string api;
  Image image;
  // Loads module text. With `log` the driver's JIT error log is wanted; null:
  // exactly the program's options.
  std::function<CUresult(const char* ptx, std::string* log)> load_text;
  // The call as the program made it.
  std::function<CUresult()> load_original;
  bool keep_text = false;  // the driver refers to the image as long as the module lives
};

// Loads and sends the ModuleLoaded event; `*result` is what the program's call
// returns. On success the module, not yet registered under its handle.
ModulePointer Load(const LoadCall& call, CUresult* result);

// Compute capability of the current context's device, else of device 0.
ImageTarget CurrentTarget();

// The program's JIT options plus an error log, for a second attempt.
class OptionsWithLog {
 public:
  OptionsWithLog(unsigned int count, CUjit_option* options, void** values);
  unsigned int count() const { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }
  std::string log() const;

 private:
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<char> buffer_;
  const char* log_ = nullptr;
  size_t log_bytes_ = 0;
};

}  // namespace ops_debug::interposer
