// Look-up of driver functions by name and version, and the refusal of NVIDIA's private tables.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/driver/driver_functions.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

// The implemented variants of one base name.
using Variants = std::vector<const DriverFunction*>;

const std::unordered_map<std::string_view, Variants>& ImplementedByBase() {
  static const auto& by_base = *[] {
    auto* result = new std::unordered_map<std::string_view, Variants>;
    for (size_t i = 0; i < kDriverFunctionCount; ++i) {
      if (IsImplemented(i)) (*result)[kDriverFunctions[i].base].push_back(&kDriverFunctions[i]);
    }
    return result;
  }();
  return by_base;
}

// The newest ABI that a caller built against `version` may get. A per-thread-stream caller gets the
// ordinary function where there is no variant.
const DriverFunction* Choose(const Variants& variants, int version, bool per_thread) {
  const DriverFunction* best = nullptr;
  for (const DriverFunction* candidate : variants) {
    if (candidate->since_cuda_version > version) continue;
    if (candidate->per_thread_stream && !per_thread) continue;
    const bool better = best == nullptr ||
                        (candidate->per_thread_stream && !best->per_thread_stream) ||
                        (candidate->per_thread_stream == best->per_thread_stream &&
                         candidate->since_cuda_version > best->since_cuda_version);
    if (better) best = candidate;
  }
  return best;
}

CUresult Find(const char* name, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kStreamFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || function == nullptr || (flags & ~kStreamFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  CUdriverProcAddressQueryResult ignored;
  if (status == nullptr) status = &ignored;
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const auto variants = ImplementedByBase().find(name);
  if (variants == ImplementedByBase().end()) return CUDA_ERROR_NOT_FOUND;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const DriverFunction* found = Choose(variants->second, version, per_thread);
  if (found == nullptr) {
    *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_ERROR_NOT_FOUND;
  }
  *function = found->address;
  *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return Guarded([&] { return Find(name, function, version, flags, status); });
}

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  return Guarded([&] { return Find(name, function, version, flags, nullptr); });
}

// NVIDIA's own run-time asks for tables of private functions right at its start; only NVIDIA's
// driver has them.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  // NVRTC and nvJitLink ask as well, once they see a driver, and do without.
  Dl_info caller{};
  const bool known = dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname;
  const std::string_view library = known ? caller.dli_fname : "";
  for (const std::string_view compiler : {"libnvrtc", "libnvJitLink"}) {
    if (library.find(compiler) != std::string_view::npos) return CUDA_ERROR_NOT_SUPPORTED;
  }
  Say("this program contains NVIDIA's CUDA run-time (nvcc links it statically by default), which "
      "needs private tables "
      "of NVIDIA's driver; rebuild the program with `nvcc -cudart shared` to run it on the "
      "ops-debug emulator");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Profilers bracket what interests them; nothing listens here.
CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

}  // extern "C"
