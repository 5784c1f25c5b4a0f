// How a driver function gets a handler.
//
//   OPS_DEBUG_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size_bytes) {
//     CUresult result = real(address, size_bytes);
//     if (result == CUDA_SUCCESS) ...
//     return result;
//   }
//   OPS_DEBUG_HOOK_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync)  // same signature, same handler
//   OPS_DEBUG_WATCH(cuTexObjectCreate)  // no handler: only its failures are of interest
//
// One macro names the function once. The compiler compares the parameter list with cuda.h; `real`
// is a RealCall (driver_table.h) of the variant that the program called. The macro also makes the
// exported symbol (for programs linked with -lcuda) and the registration that dlsym and
// cuGetProcAddress look up. Names are exported names, see driver_api.h. Use it at namespace scope
// inside ops_debug::interposer, in a .cc file of this folder.
//
// What a handler may rely on:
//  - It runs only if the process has a session (session.h); else the driver is called directly.
//  - ProcessStart has been sent.
//  - Calls that the driver, or the handler itself, makes to hooked functions meanwhile in the same
//    thread pass straight through (the driver calls its own exports). OPS_DEBUG_REAL never comes
//    back here.
//  - An exception that leaves it becomes a Diagnostic event; the program's call is then made if it
//    was not yet, and its result returned. So a handler need not catch bad_alloc, as long as it
//    makes the program's call through `real` (with what arguments ever): a call through
//    OPS_DEBUG_REAL is not known here and would be made a second time.
//  - It may run in any thread, at once with others, without a current context, and during stream
//    capture. Locks that it takes and releases while it runs are free in the child of a fork
//    (process.h).
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "interposer/driver_table.h"

namespace ops_debug::interposer {

// One hooked function: what the macros put into the section `ops_debug_hooks`.
struct Hook {
  void (*exported)();  // the symbol that programs call
  DriverFunction function;
  bool watch_only = false;  // OPS_DEBUG_WATCH
};

std::span<const Hook> AllHooks();

// The hook of exactly this function; nullptr if it has no handler.
const Hook* FindHook(DriverFunction function);

// Whether who looks the function up gets our export in its place. A run without checks has nothing
// to do but to announce the process, and gives the driver's own functions away: no call costs more.
bool Serves(DriverFunction function) noexcept;

// Brackets one call of a handler. Not active: the call must pass straight through.
class HookScope {
 public:
  explicit HookScope(DriverFunction function);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  bool active() const { return active_; }

 private:
  bool active_;
};

// Sends the Diagnostic for a handler that threw; called in the catch block.
void ReportHandlerFailure(DriverFunction function) noexcept;

// A call that the program made to a hooked function and that failed.
struct FailedCall {
  static constexpr size_t kMaxArguments = 4;
  DriverFunction function;
  CUresult result = CUDA_SUCCESS;
  uint64_t arguments[kMaxArguments] = {};  // the first ones; 0 for what is no number and no pointer
};
// Told of every one, inside the handler's scope (call_failure.h). One listener; a second call
// replaces it.
using FailureListener = void (*)(const FailedCall& call) noexcept;
void ListenForFailures(FailureListener listener) noexcept;
void ReportFailedCall(const FailedCall& call) noexcept;

template <class T>
uint64_t ArgumentWord(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uintptr_t>(argument);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<uint64_t>(argument);
  } else {
    return 0;
  }
}
template <class... Args>
[[gnu::cold, gnu::noinline]] void CallFailed(DriverFunction function, CUresult result,
                                             const Args&... args) noexcept {
  const uint64_t all[sizeof...(Args) + 1] = {ArgumentWord(args)...};
  FailedCall call{function, result, {}};
  std::copy_n(all, std::min(sizeof...(Args), FailedCall::kMaxArguments), call.arguments);
  ReportFailedCall(call);
}

template <class Signature>
struct HookEntry;

template <class... Args>
struct HookEntry<CUresult (*)(Args...)> {
  using Real = RealCall<CUresult (*)(Args...)>;

  // What the exported symbol jumps to.
  template <DriverFunction kFunction, CUresult (*kHandler)(Real&, Args...)>
  static CUresult Call(Args... args) {
    Real real(kFunction);
    HookScope scope(kFunction);
    if (!scope.active()) return real(args...);
    CUresult result = CUDA_ERROR_UNKNOWN;
    try {
      result = kHandler(real, args...);
    } catch (abi::__forced_unwind&) {  // pthread_cancel
      throw;
    } catch (...) {
      if (real.inside()) throw;  // the program's own, on its way through the driver and us
      ReportHandlerFailure(kFunction);
      result = real.called() ? real.result() : real(args...);
    }
    if (result != CUDA_SUCCESS) [[unlikely]]
      CallFailed(kFunction, result, args...);
    return result;
  }

  // For a function that is hooked only to hear of its failures: nothing is added to a call that
  // succeeds.
  template <DriverFunction kFunction>
  static CUresult Watch(Args... args) {
    Real real(kFunction);
    const CUresult result = real(args...);
    if (result != CUDA_SUCCESS) [[unlikely]] {
      HookScope scope(kFunction);
      if (scope.active()) CallFailed(kFunction, result, args...);
    }
    return result;
  }
};

}  // namespace ops_debug::interposer

#if !defined(__x86_64__)
#error "the exported stubs are written for x86-64"
#endif

#define OPS_DEBUG_HOOK(symbol, ...)                                                                \
  static CUresult OpsDebugHandle_##symbol(                                                         \
      [[maybe_unused]] ::ops_debug::interposer::RealCall<decltype(&::symbol)>& real __VA_OPT__(, ) \
          __VA_ARGS__);                                                                            \
  OPS_DEBUG_HOOK_AS(symbol, symbol)                                                                \
  static CUresult OpsDebugHandle_##symbol(                                                         \
      [[maybe_unused]] ::ops_debug::interposer::RealCall<decltype(&::symbol)>& real __VA_OPT__(, ) \
          __VA_ARGS__)

#define OPS_DEBUG_HOOK_AS(symbol, handled)                            \
  OPS_DEBUG_EXPORT(                                                   \
      symbol, false,                                                  \
      &::ops_debug::interposer::HookEntry<decltype(&::symbol)>::Call< \
          ::ops_debug::interposer::DriverFunction::symbol, &OpsDebugHandle_##handled>)

#define OPS_DEBUG_WATCH(symbol)                                                     \
  OPS_DEBUG_EXPORT(symbol, true,                                                    \
                   &::ops_debug::interposer::HookEntry<decltype(&::symbol)>::Watch< \
                       ::ops_debug::interposer::DriverFunction::symbol>)

// The exported symbol is a jump through a pointer because a macro cannot write out a parameter list
// that it only knows as a type. It has a second, hidden name, so that our own table cannot be
// interposed.
#define OPS_DEBUG_EXPORT(symbol, watch_only, ...)                                           \
  extern "C" {                                                                              \
  __attribute__((visibility("hidden"), used)) extern constinit decltype(&::symbol)          \
      const ops_debug_entry_##symbol = __VA_ARGS__;                                         \
  __attribute__((visibility("hidden"))) void ops_debug_export_##symbol();                   \
  }                                                                                         \
  __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #symbol "\n\t.type " #symbol        \
          ", @function\n\t.hidden ops_debug_export_" #symbol                                \
          "\n\t.globl ops_debug_export_" #symbol "\n\t.type ops_debug_export_" #symbol      \
          ", @function\n" #symbol ":\nops_debug_export_" #symbol                            \
          ":\n\t.cfi_startproc\n\tendbr64\n\tjmp *ops_debug_entry_" #symbol                 \
          "(%rip)\n\t.cfi_endproc\n\t.size " #symbol ", . - " #symbol "\n\t.popsection");   \
  __attribute__((                                                                           \
      section("ops_debug_hooks"),                                                           \
      used)) static constinit const ::ops_debug::interposer::Hook OpsDebugHook_##symbol = { \
      &ops_debug_export_##symbol, ::ops_debug::interposer::DriverFunction::symbol, watch_only};
