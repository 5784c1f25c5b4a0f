// How a driver function gets a handler.
//
//   OPS_DEBUG_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size_bytes) {
//     CUresult result = real(address, size_bytes);
//     if (result == CUDA_SUCCESS) ...
//     return result;
//   }
//   OPS_DEBUG_HOOK_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync)  // same signature, same handler
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

#include <cstdint>
#include <span>

#include "interposer/driver_table.h"

namespace ops_debug::interposer {

// One hooked function: what the macros put into the section `ops_debug_hooks`.
struct Hook {
  void (*exported)();  // the symbol that programs call
  DriverFunction function;
};

std::span<const Hook> AllHooks();

// The hook of exactly this function; nullptr if it has no handler.
const Hook* FindHook(DriverFunction function);

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
    try {
      return kHandler(real, args...);
    } catch (abi::__forced_unwind&) {  // pthread_cancel
      throw;
    } catch (...) {
      if (real.inside()) throw;  // the program's own, on its way through the driver and us
      ReportHandlerFailure(kFunction);
    }
    return real.called() ? real.result() : real(args...);
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

// The exported symbol is a jump through a pointer because a macro cannot write out a parameter list
// that it only knows as a type. It has a second, hidden name, so that our own table cannot be
// interposed.
#define OPS_DEBUG_HOOK_AS(symbol, handled)                                                  \
  extern "C" {                                                                              \
  __attribute__((visibility("hidden"), used)) extern constinit decltype(&::symbol)          \
      const ops_debug_entry_##symbol =                                                      \
          &::ops_debug::interposer::HookEntry<decltype(&::symbol)>::Call<                   \
              ::ops_debug::interposer::DriverFunction::symbol, &OpsDebugHandle_##handled>;  \
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
      &ops_debug_export_##symbol, ::ops_debug::interposer::DriverFunction::symbol};
