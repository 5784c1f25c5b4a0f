// A stand-in for every function of the driver API: exported, so that programs load; says its name
// and returns CUDA_ERROR_NOT_SUPPORTED when called.
//
// Each symbol is weak here, so a function that another file of this folder defines wins at link
// time, and no list says what is implemented: a symbol that still leads to its stand-in is not. The
// real signatures do not matter (arguments are the caller's business in the C calling conventions
// of 64-bit Linux); cuda.h, which has them, must not be included here.
#include <string>

#include "emulator/driver/driver_functions.h"
#include "emulator/driver/messages.h"

namespace {

int Refuse(const char* name) noexcept {
  try {
    ops_debug::emulator::Say(std::string(name) + " is not supported by this device");
  } catch (...) {
    // Out of memory: the error code still tells the story.
  }
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

}  // namespace

extern "C" {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) \
  static int Refuse_##symbol(void) { return Refuse(#symbol); } \
  __attribute__((weak, visibility("default"), alias("Refuse_" #symbol))) int symbol(void);
#include "driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
}

namespace ops_debug::emulator {

void* RefusalAddress(size_t index) {
  static int (*const addresses[])(void) = {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) &Refuse_##symbol,
#include "driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
  };
  return reinterpret_cast<void*>(addresses[index]);
}

}  // namespace ops_debug::emulator
