// A stand-in for every function of the run-time API, so that programs load: says its name and
// returns cudaErrorNotSupported when called. Weak, so a function that another file of this folder
// defines wins at link time; see emulator/driver/refusals.cc, which does the same for the driver.
#include <string>

#include "emulator/driver/messages.h"

namespace {

int Refuse(const char* name) noexcept {
  try {
    ops_debug::emulator::Say(std::string(name) + " is not supported by this device");
  } catch (...) {
    // Out of memory: the error code still tells the story.
  }
  return 801;  // cudaErrorNotSupported
}

}  // namespace

extern "C" {
#define OPS_DEBUG_RUNTIME_FUNCTION(symbol) \
  __attribute__((weak)) int symbol(void) { return Refuse(#symbol); }
#include "emulator/cudart/runtime_table.inc"
#if OPS_DEBUG_RUNTIME_VERSION < 13000
#include "emulator/cudart/cuda12_names.inc"
#endif
#undef OPS_DEBUG_RUNTIME_FUNCTION

// Exported by NVIDIA's as well, declared in no header.
__attribute__((weak)) int __cudaRegisterUnifiedTable(void) {
  return Refuse("__cudaRegisterUnifiedTable");
}
}
