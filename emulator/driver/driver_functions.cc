// The table of the driver API. Apart from refusals.cc, because an address taken beside the weak
// definition could be resolved by the compiler instead of the linker.
#include "emulator/driver/driver_functions.h"

extern "C" {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) int symbol(void);
#include "driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
}

namespace ops_debug::emulator {

const DriverFunction kDriverFunctions[] = {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) \
  {#symbol, #base, since, sizeof(#suffix) > 1, reinterpret_cast<void*>(&symbol)},
#include "driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
};

const size_t kDriverFunctionCount = sizeof(kDriverFunctions) / sizeof(kDriverFunctions[0]);

}  // namespace ops_debug::emulator
