// One piece of stream work and the way it takes: an entry point checks its arguments and copies
// everything into an Operation, Submit queues it in its stream (or hands it to the capture), a
// worker of the device calls Perform when its turn has come (work_scheduler.h says when that is).
//
// Locks: entry points call Submit with the driver's lock held (InContext). Nobody waits for work
// while holding that lock: Wait* take it on their own. Perform runs without any lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

// A kernel launch whose shape has been checked. The function lives until its module is unloaded,
// which waits for the context's work.
struct KernelOperation {
  CUfunc_st* function = nullptr;
  Dim3 grid, block, cluster;
  bool explicit_cluster = false;
  bool cooperative = false;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // packed
  // For the checks, set when it is performed.
  std::shared_ptr<const DeviceOperation> order;
};

// A box of rows and slices; a line is a box of height and depth 1.
struct CopyOperation {
  uint64_t to = 0, from = 0;
  uint64_t width_bytes = 0, height = 1, depth = 1;
  uint64_t to_pitch_bytes = 0, to_slice_bytes = 0;
  uint64_t from_pitch_bytes = 0, from_slice_bytes = 0;
  // The source is pageable host memory: what it holds at submission is copied. A captured copy
  // reads it when the graph runs.
  bool stages_source = false;
  std::shared_ptr<const std::vector<std::byte>> staged;  // set by Submit; `from` leads into it
};

struct FillOperation {
  uint64_t address = 0, pitch_bytes = 0;
  uint32_t value = 0;
  uint32_t element_bytes = 1;      // 1, 2 or 4
  uint64_t width = 0, height = 1;  // width in elements
};

// cuLaunchHostFunc, or cuStreamAddCallback if `callback` is set.
struct HostOperation {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream = nullptr;  // as the caller named it; for `callback`
  void* user_data = nullptr;
};

struct EventRecordOperation {
  CUevent_st* event = nullptr;  // for the capture; may be gone when the operation is performed
  unsigned flags = 0;
  std::shared_ptr<EventMark> mark;  // made by Submit unless it is there already
};

// Waits for the event's latest record. Submit turns it into `Operation::after`.
struct EventWaitOperation {
  CUevent_st* event = nullptr;
  unsigned flags = 0;
};

// Stream-ordered allocation: the address is known at submission, so there is nothing to perform.
struct AllocateOperation {
  uint64_t address = 0, size_bytes = 0;
  CUmemoryPool pool = nullptr;
};

// Gives the block back to its pool, if it is still allocation `id`.
struct FreeOperation {
  uint64_t address = 0;
  uint64_t id = 0;
  uint64_t size_bytes = 0;  // for the checks; 0: not known
};

struct MemoryWaitOperation {
  uint64_t address = 0, value = 0;
  uint32_t bytes = 4;  // 4 or 8
  unsigned flags = 0;  // CUstreamWaitValue_flags
};

struct MemoryWriteOperation {
  uint64_t address = 0, value = 0;
  uint32_t bytes = 4;
};

// Work of another kind, such as a graph. Perform is called on a worker, without locks.
class StreamWork {
 public:
  virtual ~StreamWork() = default;
  virtual CUresult Perform(Device& device) = 0;
};

struct Operation {
  std::variant<std::monostate, KernelOperation, CopyOperation, FillOperation, HostOperation,
               EventRecordOperation, EventWaitOperation, AllocateOperation, FreeOperation,
               MemoryWaitOperation, MemoryWriteOperation, std::shared_ptr<StreamWork>>
      work;                        // monostate: nothing to do but to keep the order
  std::vector<StreamPoint> after;  // what has to be done before, beside the stream's earlier work

  // Who the operation is and what comes before it, for the checks (checked_work.h).
  std::shared_ptr<const DeviceOperation> order;

  // Filled in by Submit.
  CUctx_st* context = nullptr;
  uint64_t number = 0;  // order of submission in the process
};

// Does the operation's work, now, on the calling thread; host functions are called on the thread
// that is kept for them. An error of the device (a faulted kernel) that the context has to keep.
CUresult Perform(Device& device, Operation& operation);

// Queues `operation` in `stream` of `context`, in which entry points hold the lock; a capturing
// stream's operation goes to CaptureOperation (capture.h) instead. `*point`: behind the operation;
// without order if it was captured.
CUresult Submit(Device& device, CUctx_st& context, CUstream stream, Operation operation,
                StreamPoint* point = nullptr);

// A stream that has no handle and takes part in no implicit synchronisation: for branches of
// graphs. Enqueue puts work there that only `operation.after` and the order's earlier work hold
// back.
std::shared_ptr<StreamOrder> NewOrder(CUctx_st& context);
StreamPoint Enqueue(CUctx_st& context, const std::shared_ptr<StreamOrder>& order,
                    Operation operation);

// Where `stream`'s work stands at the moment: behind everything submitted to it, and, for the
// legacy default stream, to the streams that synchronise with it.
std::vector<StreamPoint> LatestPoints(CUctx_st& context, const CUstream_st& stream);

// Blocks until the points are reached. NOT with the driver's lock held.
void WaitForPoints(const std::vector<StreamPoint>& points);
// The same for everything submitted to the context, or to all contexts of the device.
void WaitForContext(const CUctx_st& context);
void WaitForDevice(const Device& device);

// Calls a host function or a callback; `status` is the state of its context.
void CallHost(const HostOperation& host, CUresult status);

// True if the points are reached. In a chosen schedule, asking lets work go on.
bool ArePointsReached(const std::vector<StreamPoint>& points);

}  // namespace ops_debug::emulator
