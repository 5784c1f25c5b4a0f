// Opens the driver library and binds the functions by name; errors carry the driver's own
// description.
#include "runner/driver.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

// Two steps, so that cuda.h's macros expand before the name becomes a string.
#define OPS_DEBUG_RUNNER_STRING(name) #name
#define OPS_DEBUG_RUNNER_EXPANDED_STRING(name) OPS_DEBUG_RUNNER_STRING(name)

template <class Function>
bool Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) *missing = name;
  return *function != nullptr;
}

}  // namespace

std::string Driver::Describe(const char* call, CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  return StrCat(call, ": ", name != nullptr ? name : StrCat("error ", static_cast<int>(result)),
                text != nullptr ? StrCat(" (", text, ")") : "");
}

absl::StatusOr<Driver> LoadDriver() {
  Driver driver;
  driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver.library == nullptr) {
    const char* reason = dlerror();
    return absl::FailedPreconditionError(
        StrCat("no CUDA driver: ", reason != nullptr ? reason : "libcuda.so.1 not found",
               "\n  hint: without a GPU, let ops-debug use its CPU device: --device emulator"));
  }
  std::string missing;
#define OPS_DEBUG_RUNNER_FIND(name) \
  Find(driver.library, OPS_DEBUG_RUNNER_EXPANDED_STRING(name), &driver.name, &missing);
  OPS_DEBUG_RUNNER_DRIVER_FUNCTIONS(OPS_DEBUG_RUNNER_FIND)
#undef OPS_DEBUG_RUNNER_FIND
  if (!missing.empty()) {
    return absl::FailedPreconditionError(StrCat("libcuda.so.1 has no ", missing));
  }
  return driver;
}

}  // namespace ops_debug::runner
