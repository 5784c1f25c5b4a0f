// The driver API as cuGetProcAddress sees it: every function of cuda.h with the version that
// introduced it, and whether this device has it.
#pragma once

#include <cstddef>
#include <string_view>

namespace ops_debug::emulator {

struct DriverFunction {
  std::string_view symbol;  // as exported: "cuMemcpyHtoD_v2_ptds"
  std::string_view base;    // as cuGetProcAddress is asked for it: "cuMemcpyHtoD"
  int since_cuda_version;   // first version whose callers get this ABI: 3020; 0 = not known
  bool per_thread_stream;   // means the thread's own stream by stream 0
  void* address;            // what the library exports as `symbol`
};

// In the order of driver_table.inc, which is generated from cuda.h.
extern const DriverFunction kDriverFunctions[];
extern const size_t kDriverFunctionCount;

// Address of the stand-in for kDriverFunctions[index]: exported if nothing else defines the symbol.
void* RefusalAddress(size_t index);

inline bool IsImplemented(size_t index) {
  return kDriverFunctions[index].address != RefusalAddress(index);
}

}  // namespace ops_debug::emulator
