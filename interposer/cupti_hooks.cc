// Who profiles with CUPTI inside the program (PyTorch's profiler, TensorFlow's, JAX's): libcupti is
// in memory anyway, so it is its use that is named, when it begins. Only looks.
//
// The declarations stand in for cupti.h, which is no part of what the build needs: pointers stay
// opaque, enumerations are passed as int.
#include "interposer/event_sender.h"
#include "interposer/library_hooks.h"
#include "interposer/process_state.h"

extern "C" {
int cuptiSubscribe(void** subscriber, void* callback, void* user_data);
int cuptiActivityEnable(int kind);
int cuptiActivityEnableContext(void* context, int kind);
}

namespace ops_debug::interposer {
namespace {

constexpr int kNotInitialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED: no libcupti is loaded

void Name() noexcept {
  if (!EnterHandlerQuietly()) return;
  try {
    SendOnce({.severity = proto_enums::Severity::kNote,
              .text = "a CUPTI client (such as the PyTorch profiler, Kineto) is active in the "
                      "process, too",
              .hint = "its times include ours; NVIDIA's tools interfaces serve one client at a "
                      "time, so kernels that have no PTX may stay unchecked meanwhile"});
  } catch (...) {
  }
  LeaveHandler();
}

}  // namespace

OPS_DEBUG_LIBRARY_HOOK(cuptiSubscribe, kNotInitialized, void** subscriber, void* callback,
                       void* user_data) {
  Name();
  return real(subscriber, callback, user_data);
}
OPS_DEBUG_LIBRARY_HOOK(cuptiActivityEnable, kNotInitialized, int kind) {
  Name();
  return real(kind);
}
OPS_DEBUG_LIBRARY_HOOK(cuptiActivityEnableContext, kNotInitialized, void* context, int kind) {
  Name();
  return real(context, kind);
}

}  // namespace ops_debug::interposer
