// State per CUDA context, and the conditions under which the interposer may call the driver itself:
// never while a stream of the context is being captured in a mode that forbids it.
#include "interposer/context_state.h"

#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "interposer/event_sender.h"
#include "interposer/exact_checks.h"
#include "interposer/hooks.h"
#include "interposer/init_state.h"
#include "interposer/race_state.h"
#include "interposer/session.h"
#include "interposer/shadow_updates.h"
#include "interposer/stream_order.h"
#include "shadow/abi/device_abi.h"

namespace ops_debug::interposer {
namespace {

// Never destroyed: hooks run until the very end of the process.
struct Contexts {
  std::shared_mutex mutex;
  std::unordered_map<CUcontext, ContextPointer> states;  // null: could not be made
  std::mutex capture_mutex;
  std::set<CUstream> captured;
};
Contexts& TheContexts() {
  static auto* contexts = new Contexts;
  return *contexts;
}

ContextPointer MakeContextState(CUcontext context) {
  InternalCalls calls(context);
  CUstream stream = nullptr;
  if (!calls.ok() ||
      OPS_DEBUG_REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "cannot create a stream for the checks; kernels of this "
                                     "context run unchecked",
                             .hint = "an earlier CUDA error may have broken the context"});
    return nullptr;
  }
  auto state = std::make_shared<ContextState>(context, stream, Options().quarantine_bytes);
  if (state->races || state->init) ListenForHostWork();
  if (ChecksMemory() && !state->shadow.Create()) {
    OPS_DEBUG_REAL(cuStreamDestroy_v2)(stream);
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no device memory for shadow memory; kernels of this context "
                                     "run unchecked",
                             .hint = "32 MiB plus an eighth of the allocated memory must be free"});
    return nullptr;
  }
  return state;
}

}  // namespace

bool ChecksMemory() {
  static const bool checks = Options().check_memory && !Options().null_rewrite;
  return checks;
}

shadow::AllocationBook& Book() {
  static auto* book = new shadow::AllocationBook;
  return *book;
}

uint64_t DriverDevice::Allocate(uint64_t size_bytes) {
  CUdeviceptr address = 0;
  if (OPS_DEBUG_REAL(cuMemAlloc_v2)(&address, size_bytes) != CUDA_SUCCESS) return 0;
  HideFromChecks(address, size_bytes);
  return address;
}
void DriverDevice::Free(uint64_t address) { OPS_DEBUG_REAL(cuMemFree_v2)(address); }
bool DriverDevice::Fill(uint64_t address, uint8_t value, uint64_t size_bytes) {
  return FillInStream(address, value, size_bytes, stream_);
}
bool DriverDevice::Write(uint64_t address, const void* data, uint64_t size_bytes) {
  return OPS_DEBUG_REAL(cuMemcpyHtoDAsync_v2)(address, data, size_bytes, stream_) == CUDA_SUCCESS;
}
bool DriverDevice::Finish() { return OPS_DEBUG_REAL(cuStreamSynchronize)(stream_) == CUDA_SUCCESS; }
bool DriverDevice::FillInStream(uint64_t address, uint8_t value, uint64_t size_bytes,
                                void* stream) {
  return OPS_DEBUG_REAL(cuMemsetD8Async)(address, value, size_bytes,
                                         static_cast<CUstream>(stream)) == CUDA_SUCCESS;
}
bool DriverDevice::Read(void* data, uint64_t address, uint64_t size_bytes) {
  return OPS_DEBUG_REAL(cuMemcpyDtoHAsync_v2)(data, address, size_bytes, stream_) == CUDA_SUCCESS &&
         Finish();
}

ContextState::ContextState(CUcontext handle, CUstream own_stream, uint64_t quarantine_bytes)
    : context(handle),
      stream(own_stream),
      device(own_stream),
      shadow(device),
      updates(std::make_unique<ShadowUpdates>(*this)),
      races(ChecksRacesOnDevice() ? std::make_unique<RaceState>(*this) : nullptr),
      init(ChecksInitOnDevice() ? std::make_unique<InitState>(*this) : nullptr),
      quarantine(quarantine_bytes) {}
ContextState::~ContextState() = default;

ContextPointer FindContextState(CUcontext context) {
  Contexts& contexts = TheContexts();
  std::shared_lock lock(contexts.mutex);
  const auto found = contexts.states.find(context);
  return found == contexts.states.end() ? nullptr : found->second;
}

ContextPointer ContextStateOf(CUcontext context) {
  if (!context || !ChecksAnything()) return nullptr;
  Contexts& contexts = TheContexts();
  {
    std::shared_lock lock(contexts.mutex);
    const auto found = contexts.states.find(context);
    if (found != contexts.states.end()) return found->second;
  }
  std::unique_lock lock(contexts.mutex);
  const auto found = contexts.states.find(context);
  if (found != contexts.states.end()) return found->second;
  return contexts.states[context] = MakeContextState(context);
}

ContextPointer CurrentContextState() {
  CUcontext context = nullptr;
  if (OPS_DEBUG_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) return nullptr;
  return ContextStateOf(context);
}

ContextPointer StreamContextState(CUstream stream, DefaultStream default_stream) {
  const CUstream explicit_stream = ExplicitStream(stream, default_stream);
  if (explicit_stream == CU_STREAM_LEGACY || explicit_stream == CU_STREAM_PER_THREAD) {
    return CurrentContextState();
  }
  CUcontext context = nullptr;
  if (OPS_DEBUG_REAL(cuStreamGetCtx)(explicit_stream, &context) != CUDA_SUCCESS)
    return CurrentContextState();
  return ContextStateOf(context);
}

std::vector<ContextPointer> AllContextStates() {
  Contexts& contexts = TheContexts();
  std::shared_lock lock(contexts.mutex);
  std::vector<ContextPointer> all;
  for (const auto& [context, state] : contexts.states) {
    if (state) all.push_back(state);
  }
  return all;
}

void DropContextState(CUcontext context) {
  Contexts& contexts = TheContexts();
  ContextPointer state;
  {
    std::unique_lock lock(contexts.mutex);
    const auto found = contexts.states.find(context);
    if (found == contexts.states.end()) return;
    state = std::move(found->second);
    contexts.states.erase(found);
  }
  if (state) state->lost = true;
  Book().RemoveContext(context);
}

InternalCalls::InternalCalls(CUcontext context) {
  CUcontext current = nullptr;
  if (OPS_DEBUG_REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS) return;
  if (current != context) {
    if (OPS_DEBUG_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return;
    pushed_ = true;
  }
  relaxed_.emplace();
  ok_ = true;
}

InternalCalls::~InternalCalls() {
  relaxed_.reset();
  if (pushed_) {
    CUcontext popped = nullptr;
    OPS_DEBUG_REAL(cuCtxPopCurrent_v2)(&popped);
  }
}

CUstream ExplicitStream(CUstream stream, DefaultStream default_stream) {
  if (stream) return stream;
  return default_stream == DefaultStream::kPerThread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

bool IsCapturing(CUstream explicit_stream) {
  // The legacy stream cannot be captured; and a stream joins a capture by an
  // event, so our own list is not enough, but an empty list is.
  if (explicit_stream == CU_STREAM_LEGACY || !AnyCapture()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return OPS_DEBUG_REAL(cuStreamIsCapturing)(explicit_stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool AnyCapture() { return g_captured_streams.load(std::memory_order_relaxed) != 0; }

namespace {

// PER_THREAD names another stream in each thread; the set then holds it once,
// which only shortens the list.
void BeginCapture(CUstream stream) {
  Contexts& contexts = TheContexts();
  std::lock_guard lock(contexts.capture_mutex);
  contexts.captured.insert(stream);
  g_captured_streams = contexts.captured.size();
}
void EndCapture(CUstream stream) {
  Contexts& contexts = TheContexts();
  std::lock_guard lock(contexts.capture_mutex);
  contexts.captured.erase(stream);
  g_captured_streams = contexts.captured.size();
}

}  // namespace

OPS_DEBUG_HOOK(cuStreamBeginCapture, CUstream stream) {
  const CUresult result = real(stream);
  if (result == CUDA_SUCCESS) BeginCapture(ExplicitStream(stream, real.default_stream()));
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamBeginCapture_ptsz, cuStreamBeginCapture)

OPS_DEBUG_HOOK(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode) {
  const CUresult result = real(stream, mode);
  if (result == CUDA_SUCCESS) BeginCapture(ExplicitStream(stream, real.default_stream()));
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2)

OPS_DEBUG_HOOK(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph,
               const CUgraphNode* dependencies, const CUgraphEdgeData* edges, size_t count,
               CUstreamCaptureMode mode) {
  const CUresult result = real(stream, graph, dependencies, edges, count, mode);
  if (result == CUDA_SUCCESS) BeginCapture(ExplicitStream(stream, real.default_stream()));
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph)

OPS_DEBUG_HOOK(cuStreamEndCapture, CUstream stream, CUgraph* graph) {
  const CUresult result = real(stream, graph);
  // A failed capture has ended, too; one that another thread must end has not.
  const CUstream explicit_stream = ExplicitStream(stream, real.default_stream());
  if (result == CUDA_SUCCESS || !IsCapturing(explicit_stream)) EndCapture(explicit_stream);
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamEndCapture_ptsz, cuStreamEndCapture)

OPS_DEBUG_HOOK(cuStreamDestroy_v2, CUstream stream) {
  for (const ContextPointer& state : stream ? AllContextStates() : std::vector<ContextPointer>()) {
    state->updates->StreamEnds(stream);
  }
  const CUresult result = real(stream);
  if (result == CUDA_SUCCESS) OrderStreamDestroyed(stream);
  if (result == CUDA_SUCCESS && AnyCapture()) EndCapture(stream);
  return result;
}
OPS_DEBUG_HOOK_AS(cuStreamDestroy, cuStreamDestroy_v2)

}  // namespace ops_debug::interposer
