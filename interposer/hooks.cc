// The hook boundary: which functions have handlers, and whether a call may enter its handler.
#include "interposer/hooks.h"

#include <atomic>
#include <exception>
#include <string>

#include "interposer/event_sender.h"
#include "interposer/process_state.h"
#include "interposer/session.h"

// Bounds of the section that OPS_DEBUG_HOOK fills, made by the linker; weak, because a test may
// link no hook.
extern "C" {
extern const ops_debug::interposer::Hook __start_ops_debug_hooks[]
    __attribute__((weak, visibility("hidden")));
extern const ops_debug::interposer::Hook __stop_ops_debug_hooks[]
    __attribute__((weak, visibility("hidden")));
}

namespace ops_debug::interposer {
namespace {

// Functions that come before cuInit: the first call that has something to announce is another.
constexpr bool MayPrecedeInitialization(DriverFunction function) {
  return function == DriverFunction::cuInit || function == DriverFunction::cuGetProcAddress ||
         function == DriverFunction::cuGetProcAddress_v2;
}

constinit std::atomic<FailureListener> g_failure_listener{nullptr};

}  // namespace

void ListenForFailures(FailureListener listener) noexcept { g_failure_listener = listener; }

void ReportFailedCall(const FailedCall& call) noexcept {
  if (const FailureListener listener = g_failure_listener.load(std::memory_order_acquire))
    listener(call);
}

std::span<const Hook> AllHooks() { return {__start_ops_debug_hooks, __stop_ops_debug_hooks}; }

const Hook* FindHook(DriverFunction function) {
  for (const Hook& hook : AllHooks()) {
    if (hook.function == function) return &hook;
  }
  return nullptr;
}

bool Serves(DriverFunction function) noexcept {
  static const bool watches = ChecksAnything() || Options().null_rewrite;
  return watches || MayPrecedeInitialization(function);
}

HookScope::HookScope(DriverFunction function) : active_(EnterHandler()) {
  if (active_ && !MayPrecedeInitialization(function)) AnnounceProcess();
}

HookScope::~HookScope() {
  if (active_) LeaveHandler();
}

void ReportHandlerFailure(DriverFunction function) noexcept {
  try {
    std::string what = "unknown exception";
    try {
      throw;
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {
    }
    DiagnosticEvent event;
    event.severity = proto_enums::Severity::kError;
    event.text = "the handler of " + std::string(Info(function).symbol) + " failed (" + what +
                 "); the program's call went to the driver unchanged";
    event.hint =
        "this is a fault of ops-debug: what this call did is not checked; please report it";
    SendOnce(event);
  } catch (...) {
  }
}

}  // namespace ops_debug::interposer
