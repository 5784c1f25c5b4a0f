// Stream capture, as the other files see it. All of it is called with the driver's lock held.
#pragma once

#include <optional>
#include <vector>

#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

// Where Submit puts operations instead of a queue while a graph's node is made of them; nullptr:
// nowhere.
std::vector<Operation>*& RecordingSink();

// Takes `operation` over if `stream` is capturing, or refuses it because of a capture that is under
// way elsewhere; nullopt: it is to be queued.
std::optional<CUresult> CaptureOperation(Device& device, CUctx_st& context, CUstream_st& stream,
                                         Operation& operation);

bool IsCapturing(const CUstream_st& stream);

// What the calls get that a capture forbids. Each one that is not CUDA_SUCCESS invalidates the
// capture.
CUresult RefuseWaiting(const CUstream_st& stream);  // synchronising with or asking a stream
CUresult RefuseWaiting(const CUevent_st& event);
CUresult RefuseWaiting(const CUctx_st& context);
CUresult RefuseAskingForFlags(const CUstream_st& stream);  // in every mode
// A call that could depend on captured work in ways that the capture does not see, such as
// cuMemAlloc (cuThreadExchangeStreamCaptureMode). Which calls these are was measured on an H200
// (driver 580): allocating, freeing and registering memory, unloading code, setting limits, and
// waiting for any stream or event or asking whether it is done.
CUresult RefuseUnsafe();

// Adds `graph` as a child node to the capture of `stream`.
CUresult CaptureGraph(CUstream_st& stream, CUgraph graph);

// The handles are about to become invalid.
void ForgetStream(const CUstream_st& stream);
void ForgetEvent(const CUevent_st& event);
void ForgetCapturesOf(const CUctx_st& context);

}  // namespace ops_debug::emulator
