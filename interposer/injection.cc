// The other way in: the driver loads what CUDA_INJECTION64_PATH names, in cuInit, and calls
// InitializeInjection (CUPTI documents this for its own clients). The launcher sets the variable to
// this library, so children whose environment lost LD_PRELOAD still come here.
//
// In a process that has us preloaded it is the same library, loaded once, and there is nothing left
// to do. The driver is not initialised yet when it calls; nothing was allocated or loaded, so
// nothing is missed.
#include <dlfcn.h>

#include "interposer/dynamic_linker.h"
#include "interposer/event_sender.h"
#include "interposer/process_state.h"
#include "interposer/rebinding.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"

extern "C" {
// hooks_dlsym.cc, which test programs leave out.
__attribute__((weak, visibility("hidden"))) void ops_debug_export_dlsym();
}

namespace ops_debug::interposer {
namespace {

// Preloaded: the program's look-ups come to us by name.
bool IsPreloaded() {
  const void* const first = RealDlsym()(RTLD_DEFAULT, "dlsym");
  return first == reinterpret_cast<void*>(&ops_debug_export_dlsym);
}

void Begin() {
  if (!SessionOpen() || IsInjected() || IsPreloaded()) return;
  SetInjected();
  if (ChecksMemory()) StartSassEngine();  // as the hook of cuInit does
  if (RebindLoadedObjects() == 0) {
    Send(DiagnosticEvent{
        .severity = proto_enums::Severity::kWarning,
        .text = "the driver loaded ops-debug into a process without LD_PRELOAD, but no pointer to "
                "the driver's functions was found in its libraries; its kernels are not checked",
        .hint = "let the program pass LD_PRELOAD on to its children"});
  }
}

}  // namespace
}  // namespace ops_debug::interposer

// 1: success.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() noexcept {
  try {
    ops_debug::interposer::Begin();
  } catch (...) {
  }
  return 1;
}
