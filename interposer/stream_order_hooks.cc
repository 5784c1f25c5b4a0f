// Streams, events, waits for what cannot be seen, host functions, and stream work that touches no
// memory which is looked at: each keeps its place in the order (stream_order.h). Calls that other
// handlers serve, too, tell the order from there: launches (launch_path.cc), graphs
// (launch_graph_hooks.cc), waits of the host and some copies (fault_hooks.cc), memory
// (allocation_hooks.cc, allocation_host_hooks.cc).
#include "interposer/order_hook.h"
#include "interposer/process_state.h"

namespace ops_debug::interposer {
namespace {

// Work with a place in the order and without accesses.
template <class Real, class Call>
CUresult InOrder(const Real& real, CUstream stream, Call call,
                 std::vector<RangeAccess> accesses = {}) {
  OrderedWork work({.api = ApiName(real), .accesses = std::move(accesses)}, StreamOf(real, stream));
  const CUresult result = call();
  work.Submitted(result);
  return result;
}

}  // namespace

// ---- Streams
OPS_DEBUG_ORDER_HOOK(cuStreamCreate, CUstream* stream, unsigned int flags) {
  const CUresult result = real(stream, flags);
  if (result == CUDA_SUCCESS) OrderStreamCreated(*stream);
  return result;
}
OPS_DEBUG_ORDER_HOOK(cuStreamCreateWithPriority, CUstream* stream, unsigned int flags,
                     int priority) {
  const CUresult result = real(stream, flags, priority);
  if (result == CUDA_SUCCESS) OrderStreamCreated(*stream);
  return result;
}

// ---- Events
OPS_DEBUG_ORDER_HOOK(cuEventRecord, CUevent event, CUstream stream) {
  const CUresult result = real(event, stream);
  if (result == CUDA_SUCCESS) OrderEventRecorded(event, StreamOf(real, stream), 0);
  return result;
}
OPS_DEBUG_ORDER_HOOK_AS(cuEventRecord_ptsz, cuEventRecord)
OPS_DEBUG_ORDER_HOOK(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned int flags) {
  const CUresult result = real(event, stream, flags);
  if (result == CUDA_SUCCESS) OrderEventRecorded(event, StreamOf(real, stream), flags);
  return result;
}
OPS_DEBUG_ORDER_HOOK_AS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags)
OPS_DEBUG_ORDER_HOOK(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned int flags) {
  const CUresult result = real(stream, event, flags);
  if (result == CUDA_SUCCESS) OrderEventAwaited(StreamOf(real, stream), event, flags);
  return result;
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent)
OPS_DEBUG_ORDER_HOOK(cuEventDestroy_v2, CUevent event) {
  const CUresult result = real(event);
  if (result == CUDA_SUCCESS) OrderEventDestroyed(event);
  return result;
}
OPS_DEBUG_ORDER_HOOK_AS(cuEventDestroy, cuEventDestroy_v2)

// An answer means that both have been reached.
OPS_DEBUG_ORDER_HOOK(cuEventElapsedTime, float* milliseconds, CUevent start, CUevent end) {
  HostWait first = HostWait::ForEvent(nullptr, start), second = HostWait::ForEvent(nullptr, end);
  const CUresult result = real(milliseconds, start, end);
  OrderTimesCompared();
  first.Done(result);
  second.Done(result);
  return result;
}
OPS_DEBUG_ORDER_HOOK_AS(cuEventElapsedTime_v2, cuEventElapsedTime)

// Another process records it, too, at times that are not seen.
OPS_DEBUG_ORDER_HOOK(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event) {
  const CUresult result = real(handle, event);
  if (result == CUDA_SUCCESS) OrderEventShared(event);
  return result;
}
OPS_DEBUG_ORDER_HOOK(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle) {
  const CUresult result = real(event, handle);
  if (result == CUDA_SUCCESS) OrderEventShared(*event);
  return result;
}
// All streams of a context at once: which these are is not followed, so that waiting for the event
// counts as waiting for everything.
OPS_DEBUG_ORDER_HOOK(cuCtxRecordEvent, CUcontext context, CUevent event) {
  const CUresult result = real(context, event);
  if (result == CUDA_SUCCESS) OrderEventShared(event);
  return result;
}
OPS_DEBUG_ORDER_HOOK(cuGreenCtxRecordEvent, CUgreenCtx context, CUevent event) {
  const CUresult result = real(context, event);
  if (result == CUDA_SUCCESS) OrderEventShared(event);
  return result;
}
OPS_DEBUG_ORDER_HOOK(cuCtxWaitEvent, CUcontext context, CUevent event) {
  const CUresult result = real(context, event);
  if (result == CUDA_SUCCESS) HostKnowsAllDone();
  return result;
}
OPS_DEBUG_ORDER_HOOK(cuGreenCtxWaitEvent, CUgreenCtx context, CUevent event) {
  const CUresult result = real(context, event);
  if (result == CUDA_SUCCESS) HostKnowsAllDone();
  return result;
}

// ---- Values in memory, external semaphores
namespace {

template <class Real, class Call>
CUresult WaitsUnseen(const Real& real, CUstream stream, Call call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) OrderUnseenWait(StreamOf(real, stream));
  return result;
}

}  // namespace

OPS_DEBUG_ORDER_HOOK(cuStreamWaitValue32, CUstream stream, CUdeviceptr address, cuuint32_t value,
                     unsigned int flags) {
  return WaitsUnseen(real, stream, [&] { return real(stream, address, value, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue32_ptsz, cuStreamWaitValue32)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue32_v2, cuStreamWaitValue32)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32)
OPS_DEBUG_ORDER_HOOK(cuStreamWaitValue64, CUstream stream, CUdeviceptr address, cuuint64_t value,
                     unsigned int flags) {
  return WaitsUnseen(real, stream, [&] { return real(stream, address, value, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue64_ptsz, cuStreamWaitValue64)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue64_v2, cuStreamWaitValue64)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64)
OPS_DEBUG_ORDER_HOOK(cuStreamBatchMemOp, CUstream stream, unsigned int count,
                     CUstreamBatchMemOpParams* operations, unsigned int flags) {
  return WaitsUnseen(real, stream, [&] {
    return InOrder(real, stream, [&] { return real(stream, count, operations, flags); });
  });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamBatchMemOp_v2, cuStreamBatchMemOp)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp)
OPS_DEBUG_ORDER_HOOK(cuWaitExternalSemaphoresAsync, const CUexternalSemaphore* semaphores,
                     const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* parameters, unsigned int count,
                     CUstream stream) {
  return WaitsUnseen(real, stream, [&] { return real(semaphores, parameters, count, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuWaitExternalSemaphoresAsync_ptsz, cuWaitExternalSemaphoresAsync)

// A flag that others poll: no access that could be a race.
OPS_DEBUG_ORDER_HOOK(cuStreamWriteValue32, CUstream stream, CUdeviceptr address, cuuint32_t value,
                     unsigned int flags) {
  return InOrder(real, stream, [&] { return real(stream, address, value, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue32_ptsz, cuStreamWriteValue32)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue32_v2, cuStreamWriteValue32)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32)
OPS_DEBUG_ORDER_HOOK(cuStreamWriteValue64, CUstream stream, CUdeviceptr address, cuuint64_t value,
                     unsigned int flags) {
  return InOrder(real, stream, [&] { return real(stream, address, value, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue64_ptsz, cuStreamWriteValue64)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue64_v2, cuStreamWriteValue64)
OPS_DEBUG_ORDER_HOOK_AS(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64)

// ---- Work that moves memory without changing it
OPS_DEBUG_ORDER_HOOK(cuStreamAttachMemAsync, CUstream stream, CUdeviceptr address, size_t bytes,
                     unsigned int flags) {
  return InOrder(real, stream, [&] { return real(stream, address, bytes, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync)
OPS_DEBUG_ORDER_HOOK(cuMemPrefetchAsync, CUdeviceptr address, size_t bytes, CUdevice device,
                     CUstream stream) {
  return InOrder(real, stream, [&] { return real(address, bytes, device, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync)
OPS_DEBUG_ORDER_HOOK(cuMemPrefetchAsync_v2, CUdeviceptr address, size_t bytes,
                     CUmemLocation location, unsigned int flags, CUstream stream) {
  return InOrder(real, stream, [&] { return real(address, bytes, location, flags, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2)

// ---- Batches of copies. Their ranges are the emulator's to see.
OPS_DEBUG_ORDER_HOOK(cuMemcpyBatchAsync, CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                     size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                     size_t attribute_count, size_t* failed, CUstream stream) {
  return InOrder(real, stream, [&] {
    return real(to, from, bytes, count, attributes, indices, attribute_count, failed, stream);
  });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync)
OPS_DEBUG_ORDER_HOOK(cuMemcpyBatchAsync_v2, CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                     size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                     size_t attribute_count, CUstream stream) {
  return InOrder(real, stream, [&] {
    return real(to, from, bytes, count, attributes, indices, attribute_count, stream);
  });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2)
OPS_DEBUG_ORDER_HOOK(cuMemcpy3DBatchAsync, size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                     size_t* failed, unsigned long long flags, CUstream stream) {
  return InOrder(real, stream, [&] { return real(count, copies, failed, flags, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync)
OPS_DEBUG_ORDER_HOOK(cuMemcpy3DBatchAsync_v2, size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                     unsigned long long flags, CUstream stream) {
  return InOrder(real, stream, [&] { return real(count, copies, flags, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync_v2)

// ---- Host functions
// When one is called, all earlier work of its stream is done, and it may tell the program so in
// ways that are not seen (a condition variable, a flag). So the call itself counts as a wait of the
// host.
namespace {

struct HostCall {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  void* data = nullptr;
  bool in_graph = false;  // called at every launch: what is done then is not known here
  shadow::OrderPoint behind;
};

void Arrived(const HostCall& call) noexcept {
  if (!EnterHandlerQuietly()) return;
  try {
    if (call.in_graph) {
      HostKnowsAllDone();
    } else {
      HostKnowsDone(call.behind);
    }
  } catch (...) {
  }
  LeaveHandler();
}

void CUDA_CB CallHostFunction(void* data) {
  auto* call = static_cast<HostCall*>(data);
  Arrived(*call);
  const CUhostFn function = call->function;
  void* const its_data = call->data;
  // A graph's is called again; it lives as long as graphs may.
  if (!call->in_graph) delete call;
  function(its_data);
}

void CUDA_CB CallStreamCallback(CUstream stream, CUresult status, void* data) {
  auto* call = static_cast<HostCall*>(data);
  Arrived(*call);
  const CUstreamCallback callback = call->callback;
  void* const its_data = call->data;
  if (!call->in_graph) delete call;
  callback(stream, status, its_data);
}

template <class Real, class Submit>
CUresult WithHostCall(const Real& real, CUstream stream, HostCall made, Submit submit) {
  const CUstream explicit_stream = StreamOf(real, stream);
  made.in_graph = IsCapturing(explicit_stream);
  OrderedWork work({.api = "host function"}, explicit_stream);
  if (work.active()) made.behind = StreamPointNow(explicit_stream);
  auto* call = new HostCall(std::move(made));
  const CUresult result = submit(call);
  work.Submitted(result);
  if (result != CUDA_SUCCESS) delete call;
  return result;
}

}  // namespace

OPS_DEBUG_ORDER_HOOK(cuLaunchHostFunc, CUstream stream, CUhostFn function, void* data) {
  if (!function) return real(stream, function, data);
  return WithHostCall(real, stream, {.function = function, .data = data, .behind = {}},
                      [&](HostCall* call) { return real(stream, &CallHostFunction, call); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)
OPS_DEBUG_ORDER_HOOK(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void* data,
                     unsigned int flags) {
  if (!callback) return real(stream, callback, data, flags);
  return WithHostCall(
      real, stream, {.callback = callback, .data = data, .behind = {}},
      [&](HostCall* call) { return real(stream, &CallStreamCallback, call, flags); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuStreamAddCallback_ptsz, cuStreamAddCallback)

}  // namespace ops_debug::interposer
