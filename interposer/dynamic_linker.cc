// dlvsym is not interposed, so it leads past our own dlsym. glibc 2.34 moved the function from
// libdl into libc and gave it a new version; programs built before that ask for the old one, which
// glibc still has.
#include "interposer/dynamic_linker.h"

#include <dlfcn.h>

#include <atomic>

namespace ops_debug::interposer {
namespace {

constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};

void* Lookup(const char* version) noexcept { return dlvsym(RTLD_NEXT, "dlsym", version); }

}  // namespace

DlsymFunction RealDlsym() noexcept {
  static std::atomic<DlsymFunction> cached{nullptr};
  DlsymFunction function = cached.load(std::memory_order_acquire);
  if (function != nullptr) return function;
  for (const char* version : kVersions) {
    function = reinterpret_cast<DlsymFunction>(Lookup(version));
    if (function != nullptr) break;
  }
  cached.store(function, std::memory_order_release);
  return function;
}

std::array<const void*, 2> RealDlsymAddresses() noexcept {
  return {Lookup(kVersions[0]), Lookup(kVersions[1])};
}

bool IsRealDlsym(const void* address) noexcept {
  for (const char* version : kVersions) {
    if (address == Lookup(version)) return true;
  }
  return false;
}

}  // namespace ops_debug::interposer
