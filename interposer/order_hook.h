// Hooks of calls that matter for the order of stream work only (stream_order.h). While the order is
// not kept they are what OPS_DEBUG_WATCH makes of them: the driver is called at once, and failures
// are heard of (call_failure.h). Same form as OPS_DEBUG_HOOK.
#pragma once

#include "interposer/context_state.h"
#include "interposer/hooks.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {

template <class Signature>
struct OrderHookEntry;

template <class... Args>
struct OrderHookEntry<CUresult (*)(Args...)> {
  using Entry = HookEntry<CUresult (*)(Args...)>;

  template <DriverFunction kFunction, CUresult (*kHandler)(typename Entry::Real&, Args...)>
  static CUresult Call(Args... args) {
    if (!ChecksStreamOrder()) return Entry::template Watch<kFunction>(args...);
    return Entry::template Call<kFunction, kHandler>(args...);
  }
};

// "cuMemcpyHtoDAsync"
template <class Real>
const char* ApiName(const Real& real) {
  return Info(real.function()).base.data();
}
// The stream that the call means.
template <class Real>
CUstream StreamOf(const Real& real, CUstream stream) {
  return ExplicitStream(stream, real.default_stream());
}

}  // namespace ops_debug::interposer

#define OPS_DEBUG_ORDER_HOOK(symbol, ...)                                                          \
  static CUresult OpsDebugHandle_##symbol(                                                         \
      [[maybe_unused]] ::ops_debug::interposer::RealCall<decltype(&::symbol)>& real, __VA_ARGS__); \
  OPS_DEBUG_ORDER_HOOK_AS(symbol, symbol)                                                          \
  static CUresult OpsDebugHandle_##symbol(                                                         \
      [[maybe_unused]] ::ops_debug::interposer::RealCall<decltype(&::symbol)>& real, __VA_ARGS__)

#define OPS_DEBUG_ORDER_HOOK_AS(symbol, handled)                           \
  OPS_DEBUG_EXPORT(                                                        \
      symbol, true,                                                        \
      &::ops_debug::interposer::OrderHookEntry<decltype(&::symbol)>::Call< \
          ::ops_debug::interposer::DriverFunction::symbol, &OpsDebugHandle_##handled>)
