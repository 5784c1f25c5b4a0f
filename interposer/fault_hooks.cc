// Where faults are collected: every call after which the program knows that
// device work is done, and every call after which there is nothing left to
// collect.
#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "interposer/event_sender.h"
#include "interposer/fault_drain.h"
#include "interposer/fault_watch.h"
#include "interposer/hooks.h"
#include "interposer/launch_failure.h"
#include "interposer/launch_timing.h"
#include "interposer/leak_check.h"
#include "interposer/process.h"
#include "interposer/session.h"
#include "interposer/stream_order_copies.h"

namespace ops_debug::interposer {
namespace {

constexpr std::chrono::milliseconds kPollInterval{5};
constexpr std::chrono::milliseconds kExitPatience{1000};
constexpr std::chrono::milliseconds kForcedEndPatience{
    300};  // who sends a signal does not wait long

// A kernel has ended the context. Which one is known only if no other was
// launched since the device was last idle, which we do not claim to know: the
// event names none.
void ReportContextEnd(CUresult result, const char* api) {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                           .text = std::string(api) + " returned " + ErrorName(result) +
                                   ": a kernel ended the context; what ran "
                                   "before is reported as far as it is known",
                           .hint = "counts of faults are lower bounds"});
}

// After a call that waited for some work.
CUresult AfterWait(CUresult result, const char* api) {
  if (EndsContext(result)) ReportContextEnd(result, api);
  if (result == CUDA_SUCCESS || EndsContext(result)) DrainFaults(DrainDepth::kPublished);
  return result;
}

// After a call that waited for all work of a context, if nothing was launched
// meanwhile.
template <class Call>
CUresult WaitForContext(CUcontext context, const char* api, Call call) {
  const ContextPointer state = FindContextState(context);
  if (!state) return AfterWait(call(), api);
  const uint64_t launches = state->launches;
  const CUresult result = call();
  if (result != CUDA_SUCCESS || state->launches != launches) return AfterWait(result, api);
  DrainFaults(DrainDepth::kIdle, context);
  return result;
}

// Programs poll in tight loops; scanning at each poll would slow them down.
void AfterPoll(CUresult result) {
  if (result != CUDA_SUCCESS) return;
  static std::atomic<std::chrono::steady_clock::rep> last{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  auto before = last.load(std::memory_order_relaxed);
  if (now - before < std::chrono::steady_clock::duration(kPollInterval).count()) return;
  if (last.compare_exchange_strong(before, now)) DrainFaults(DrainDepth::kPublished);
}

CUcontext Current() {
  CUcontext context = nullptr;
  OPS_DEBUG_REAL(cuCtxGetCurrent)(&context);
  return context;
}

}  // namespace

OPS_DEBUG_HOOK(cuCtxSynchronize) {
  HostWait wait = HostWait::ForContext("cuCtxSynchronize", nullptr);
  const CUresult result = WaitForContext(ChecksAnything() ? Current() : nullptr, "cuCtxSynchronize",
                                         [&] { return real(); });
  wait.Done(result);
  return result;
}
OPS_DEBUG_HOOK(cuCtxSynchronize_v2, CUcontext context) {
  HostWait wait = HostWait::ForContext("cuCtxSynchronize", context);
  const CUresult result =
      WaitForContext(context, "cuCtxSynchronize", [&] { return real(context); });
  wait.Done(result);
  return result;
}
OPS_DEBUG_HOOK(cuStreamSynchronize, CUstream stream) {
  HostWait wait =
      HostWait::ForStream("cuStreamSynchronize", ExplicitStream(stream, real.default_stream()));
  const CUresult result = AfterWait(real(stream), "cuStreamSynchronize");
  wait.Done(result);
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamSynchronize_ptsz, cuStreamSynchronize)
OPS_DEBUG_HOOK(cuEventSynchronize, CUevent event) {
  HostWait wait = HostWait::ForEvent("cuEventSynchronize", event);
  const CUresult result = AfterWait(real(event), "cuEventSynchronize");
  wait.Done(result);
  return result;
}

OPS_DEBUG_HOOK(cuStreamQuery, CUstream stream) {
  HostWait wait = HostWait::ForStream(nullptr, ExplicitStream(stream, real.default_stream()));
  const CUresult result = real(stream);
  wait.Done(result);
  AfterPoll(result);
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamQuery_ptsz, cuStreamQuery)
OPS_DEBUG_HOOK(cuEventQuery, CUevent event) {
  HostWait wait = HostWait::ForEvent(nullptr, event);
  const CUresult result = real(event);
  wait.Done(result);
  AfterPoll(result);
  return result;
}

OPS_DEBUG_HOOK(cuMemcpyDtoH_v2, void* host, CUdeviceptr device, size_t size_bytes) {
  OrderedCopy copy("cuMemcpyDtoH", ExplicitStream(nullptr, real.default_stream()),
                   /*is_async=*/false, LinearSide(reinterpret_cast<uintptr_t>(host), size_bytes),
                   LinearSide(device, size_bytes));
  const CUresult result = AfterWait(real(host, device, size_bytes), "cuMemcpyDtoH");
  copy.Done(result);
  return result;
}
OPS_DEBUG_HOOK_AS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)
OPS_DEBUG_HOOK(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  OrderedCopy copy("cuMemcpy", ExplicitStream(nullptr, real.default_stream()),
                   /*is_async=*/false, LinearSide(to, size_bytes), LinearSide(from, size_bytes));
  const CUresult result = AfterWait(real(to, from, size_bytes), "cuMemcpy");
  copy.Done(result);
  return result;
}
OPS_DEBUG_HOOK_AS(cuMemcpy_ptds, cuMemcpy)
OPS_DEBUG_HOOK(cuMemcpy2D_v2, const CUDA_MEMCPY2D* copy) {
  CopySide to, from;
  if (copy) BoxSides(*copy, &to, &from);
  OrderedCopy ordered("cuMemcpy2D", ExplicitStream(nullptr, real.default_stream()),
                      /*is_async=*/false, to, from);
  const CUresult result = AfterWait(real(copy), "cuMemcpy2D");
  ordered.Done(result);
  return result;
}
OPS_DEBUG_HOOK_AS(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2)

namespace {

// Primary contexts end by device, so remember which context that was.
struct PrimaryContexts {
  std::mutex mutex;
  std::unordered_map<CUdevice, CUcontext> by_device;
};
PrimaryContexts& ThePrimaryContexts() {
  static auto* contexts = new PrimaryContexts;
  return *contexts;
}
CUcontext PrimaryContext(CUdevice device) {
  PrimaryContexts& contexts = ThePrimaryContexts();
  std::lock_guard lock(contexts.mutex);
  const auto found = contexts.by_device.find(device);
  return found == contexts.by_device.end() ? nullptr : found->second;
}

// Collects everything before a context goes.
void CollectLast(CUcontext context) {
  const ContextPointer state = FindContextState(context);
  if (!state) {
    ForgetLaunchTimes(context);
    return;
  }
  if (!AnyCapture() && !state->lost) {
    InternalCalls calls(*state);
    if (calls.ok()) OPS_DEBUG_REAL(cuCtxSynchronize)();
  }
  DrainFaults(DrainDepth::kFinal);
  ForgetLaunchTimes(context);
}

void DropContext(CUcontext context) {
  ReportLeaks(context);
  ForgetLaunched(context);
  ForgetContextModules(context);
  DropContextState(context);
  OrderContextDestroyed(context);
}

}  // namespace

OPS_DEBUG_HOOK(cuCtxDestroy_v2, CUcontext context) {
  CollectLast(context);
  FaultWatchPause pause;
  const CUresult result = real(context);
  if (result == CUDA_SUCCESS) DropContext(context);
  return result;
}
OPS_DEBUG_HOOK_AS(cuCtxDestroy, cuCtxDestroy_v2)

OPS_DEBUG_HOOK(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device) {
  const CUresult result = real(context, device);
  if (result == CUDA_SUCCESS && context) {
    PrimaryContexts& contexts = ThePrimaryContexts();
    std::lock_guard lock(contexts.mutex);
    contexts.by_device[device] = *context;
  }
  return result;
}

OPS_DEBUG_HOOK(cuDevicePrimaryCtxReset_v2, CUdevice device) {
  const CUcontext context = PrimaryContext(device);
  CollectLast(context);
  FaultWatchPause pause;
  const CUresult result = real(device);
  if (result == CUDA_SUCCESS && context) DropContext(context);
  return result;
}
OPS_DEBUG_HOOK_AS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)

OPS_DEBUG_HOOK(cuDevicePrimaryCtxRelease_v2, CUdevice device) {
  const CUcontext context = PrimaryContext(device);
  CollectLast(context);
  FaultWatchPause pause;
  const CUresult result = real(device);
  unsigned int flags = 0;
  int active = 1;
  if (result == CUDA_SUCCESS && context &&
      OPS_DEBUG_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS &&
      active == 0) {
    DropContext(context);
  }
  return result;
}
OPS_DEBUG_HOOK_AS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)

namespace {

// Kernels may still run when the program returns from main. Their faults
// matter, but not more than that the program ends: a kernel that never ends
// must not keep it.
void WaitUntil(std::chrono::steady_clock::time_point deadline, const ContextState& state) {
  InternalCalls calls(state);
  CUevent event = nullptr;
  if (!calls.ok() || OPS_DEBUG_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return;
  if (OPS_DEBUG_REAL(cuEventRecord)(event, CU_STREAM_LEGACY) == CUDA_SUCCESS) {
    while (OPS_DEBUG_REAL(cuEventQuery)(event) == CUDA_ERROR_NOT_READY &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  OPS_DEBUG_REAL(cuEventDestroy_v2)(event);
}

void AtEnd(EndPhase phase) {
  if (!ChecksAnything()) return;
  if (phase == EndPhase::kDriverGone) {
    DrainFaults(DrainDepth::kHostOnly);
    // Only now: destructors of the program's global objects have freed what they hold.
    ReportLeaks(nullptr);
    return;
  }
  if (!EndIsForced()) StopFaultWatch();
  if (!AnyCapture()) {
    const auto deadline =
        std::chrono::steady_clock::now() + (EndIsForced() ? kForcedEndPatience : kExitPatience);
    for (const ContextPointer& state : AllContextStates()) {
      if (!state->lost) WaitUntil(deadline, *state);
    }
  }
  DrainFaults(DrainDepth::kFinal);
}

[[maybe_unused]] const bool registered = [] {
  AtProcessEnd(&AtEnd);
  return true;
}();

}  // namespace
}  // namespace ops_debug::interposer
