// Look-up in the generated table, and the real functions behind it. A real function is asked of
// libcuda.so.1 itself, by handle: such a look-up never sees the preloaded library's exports, so a
// real pointer can never be a hook.
#include "interposer/driver_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "interposer/dynamic_linker.h"

namespace ops_debug::interposer {
namespace {

static_assert(std::ranges::is_sorted(kDriverFunctions, {}, &DriverFunctionInfo::symbol),
              "FindDriverFunction searches by bisection");

constinit std::atomic<void*> g_driver_handle{nullptr};
constinit std::atomic<void*> g_real[kDriverFunctionCount]{};

// Null until the program itself has loaded the driver. The handle is kept, so the driver stays
// loaded from then on and the pointers stay good.
void* DriverHandle() {
  void* handle = g_driver_handle.load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) g_driver_handle.store(handle, std::memory_order_release);
  return handle;
}

}  // namespace

bool FindDriverFunction(std::string_view symbol, DriverFunction* function) {
  const auto* found =
      std::ranges::lower_bound(kDriverFunctions, symbol, {}, &DriverFunctionInfo::symbol);
  if (found == std::end(kDriverFunctions) || found->symbol != symbol) return false;
  *function = static_cast<DriverFunction>(found - std::begin(kDriverFunctions));
  return true;
}

void* RealAddress(DriverFunction function) {
  std::atomic<void*>& cached = g_real[static_cast<size_t>(function)];
  void* address = cached.load(std::memory_order_acquire);
  if (address != nullptr) return address;
  void* handle = DriverHandle();
  DlsymFunction real_dlsym = RealDlsym();
  if (handle == nullptr || real_dlsym == nullptr) return nullptr;
  address = real_dlsym(handle, Info(function).symbol.data());
  if (address != nullptr) cached.store(address, std::memory_order_release);
  return address;
}

bool DriverLoaded() { return DriverHandle() != nullptr; }

RelaxedCapture::RelaxedCapture() noexcept {
  exchanged_ =
      OPS_DEBUG_REAL_FOR_PROGRAM(cuThreadExchangeStreamCaptureMode)(&mode_) == CUDA_SUCCESS;
}
RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) OPS_DEBUG_REAL_FOR_PROGRAM(cuThreadExchangeStreamCaptureMode)(&mode_);
}

}  // namespace ops_debug::interposer
