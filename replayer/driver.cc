// See driver.h.
#include "replayer/driver.h"

#include <dlfcn.h>

namespace ops_debug::replayer {
namespace {

// Two steps, so that cuda.h's macros expand before the name becomes a string.
#define OPS_DEBUG_REPLAYER_STRING(name) #name
#define OPS_DEBUG_REPLAYER_EXPANDED_STRING(name) OPS_DEBUG_REPLAYER_STRING(name)

template <class Function>
void Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) *missing = name;
}

}  // namespace

Outcome Driver::Failed(const std::string& call, CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string reason = call + ": " + (name != nullptr ? name : "error " + std::to_string(result));
  if (text != nullptr) reason += std::string(" (") + text + ")";
  return {result == CUDA_ERROR_NOT_SUPPORTED ? OutcomeKind::kUnsupported : OutcomeKind::kFailed,
          std::move(reason)};
}

Outcome LoadDriver(Driver* driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return {OutcomeKind::kFailed,
            std::string("no CUDA driver: ") + (reason != nullptr ? reason : "libcuda.so.1")};
  }
  std::string missing;
#define OPS_DEBUG_REPLAYER_FIND(name) \
  Find(library, OPS_DEBUG_REPLAYER_EXPANDED_STRING(name), &driver->name, &missing);
  OPS_DEBUG_REPLAYER_DRIVER_FUNCTIONS(OPS_DEBUG_REPLAYER_FIND)
#undef OPS_DEBUG_REPLAYER_FIND
  if (!missing.empty()) return {OutcomeKind::kFailed, "libcuda.so.1 has no " + missing};
  shadow::EmulatorPlacementFunction placement = nullptr;
  Find(library, shadow::kEmulatorPlacementSymbol, &placement, &missing);
  if (placement != nullptr) driver->placement = placement(shadow::kEmulatorPlacementVersion);
  if (driver->placement == nullptr) {
    return {OutcomeKind::kFailed,
            "libcuda.so.1 is not that of this version's CPU device; captures are replayed with "
            "ops-debug run --device emulator"};
  }
  return {};
}

}  // namespace ops_debug::replayer
