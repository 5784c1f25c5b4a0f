// The order of everything that the program submits to streams, kept while it runs
// (shadow/host/stream_clocks.h has the rules). Every call that submits work is bracketed by an
// OrderedWork: the work gets its place in the order, a description for reports, and the emulator's
// checks (exact_checks.h) or the listener (state in device memory) hear of it. Calls that
// synchronise are bracketed by a HostWait.
//
//   OrderedWork work(WorkDescription{.api = "cuMemsetD8Async"}, stream);
//   result = real(...);
//   work.Submitted(result);
//
// All of it does nothing unless races are checked (ChecksStreamOrder). Work that is captured has no
// order of its own: the launch of its graph has. Thread-safe; no lock is held while the driver
// works.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "interposer/driver_table.h"
#include "interposer/event_sender.h"
#include "interposer/stack_cache.h"
#include "interposer/stuck_launches.h"
#include "shadow/host/stream_clocks.h"
#include "shadow/host/sync_audit.h"

namespace ops_debug::interposer {

bool ChecksStreamOrder() noexcept;
// False: the process has known one stream so far, in which everything is ordered.
bool SeveralStreams() noexcept;

// Rows of memory that work of the host's touches; one row: height 1.
struct RangeAccess {
  uint64_t address = 0;
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t pitch_bytes = 0;
  bool is_write = false;
};

struct WorkDescription {
  const char* api = "";
  shadow::OperationKind kind = shadow::OperationKind::kOther;
  uint64_t token = 0;  // 0: a new one; a launch: its id
  // What it touches, as far as the call says so; not needed for kernels.
  std::vector<RangeAccess> accesses;
  shadow::WorkEffect effect = shadow::WorkEffect::kOther;
  // Pinned host memory that the work reads or writes when its turn comes: the host must leave it
  // alone until then.
  std::optional<RangeAccess> pinned;
  // Not empty: comes after, and before, all work of these contexts.
  std::vector<CUcontext> serialised_with;
};

class OrderedWork {
 public:
  // Right before the driver's call, in the same thread. `stream` is explicit (ExplicitStream).
  OrderedWork(WorkDescription description, CUstream stream);
  // Not active.
  OrderedWork() = default;
  ~OrderedWork();
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // False: not checked, or captured. Then the rest is empty.
  bool active() const { return active_; }
  uint64_t token() const { return token_; }
  shadow::OperationOrder order() const { return operation_.Order(token_); }
  const shadow::SubmittedOperation& operation() const { return operation_; }
  bool is_open() const { return operation_.open; }
  // The driver's answer: work that it refused leaves no trace in reports.
  void Submitted(CUresult result);

 private:
  bool active_ = false;
  bool submitted_ = false;
  uint64_t token_ = 0;
  CUstream stream_ = nullptr;
  shadow::SubmittedOperation operation_;
  std::vector<RangeAccess> accesses_;
};

// The order of a kernel's launch: the same, with the launch's attributes (`config` of
// cuLaunchKernelEx or null): programmatic dependent launch, events that the launch records.
// Active until `Submitted` or destruction, over a second attempt (twin, then original), too.
class LaunchOrder : public OrderedWork {
 public:
  LaunchOrder(const char* api, uint64_t launch_id, CUstream stream, const CUlaunchConfig* config);
  void Submitted(CUresult result);

 private:
  CUstream launch_stream_ = nullptr;
  const CUlaunchConfig* config_ = nullptr;
};

// Brackets a call after which the host knows that work is done. Make it before the driver's call.
// `api`: the program asked for nothing else than to wait, so the call may be redundant; null: it
// polls, or waits beside something else.
class HostWait {
 public:
  static HostWait ForStream(const char* api, CUstream explicit_stream);
  static HostWait ForEvent(const char* api, CUevent event);
  static HostWait ForContext(const char* api, CUcontext context);
  // Everything of the process (cuMemFree waits for whatever may use the memory).
  static HostWait ForAll();
  // Of the work itself: a copy that returns when it is done. `promised`: the documentation says so;
  // else it is only so as things are, and no reason to call another wait redundant.
  static HostWait ForWork(const OrderedWork& work, bool promised);

  // On success the host has waited.
  void Done(CUresult result);

 private:
  HostWait() = default;
  void Begin(const char* api);

  bool active_ = false;
  bool promised_ = true;
  BlockingCall blocking_;  // unless it polls
  shadow::OrderPoint point_;
  const char* api_ = nullptr;  // of a call that only waits
  uint64_t begin_ns_ = 0;
};

// Events and streams.
void OrderEventRecorded(CUevent event, CUstream explicit_stream, unsigned int flags);
void OrderEventAwaited(CUstream explicit_stream, CUevent event, unsigned int flags);
void OrderEventShared(CUevent event);
void OrderEventDestroyed(CUevent event);
void OrderStreamCreated(CUstream stream);
void OrderStreamDestroyed(CUstream stream);
void OrderContextDestroyed(CUcontext context);
// The stream waits for something that cannot be seen: a value in memory, an external semaphore.
void OrderUnseenWait(CUstream explicit_stream);
// The stream comes after the point; the host has learned that it is reached.
void OrderStreamAfter(CUstream explicit_stream, const shadow::OrderPoint& point);
void HostKnowsDone(const shadow::OrderPoint& point);
void HostKnowsAllDone();
// What the host knows to be done.
shadow::VectorClock HostClock();
// The program asks how long something took: its waits may be there to measure.
void OrderTimesCompared();
// What has to be done before the stream is where it is now.
shadow::OrderPoint StreamPointNow(CUstream explicit_stream);

// Streams that the process uses, of whatever context.
struct KnownStreamHandle {
  CUstream stream = nullptr;  // explicit
  bool is_only_one = false;   // of CU_STREAM_PER_THREAD: only one thread uses its own
};
std::vector<KnownStreamHandle> StreamsWithWork();

// Work with memory in device cells: told of each operation with the ranges that it touches, before
// the driver hears of it (`before` true) and after. At most one; for race_state.cc.
using WorkListener = void (*)(bool before, CUstream explicit_stream,
                              const shadow::OperationOrder& order,
                              std::span<const RangeAccess> accesses) noexcept;
void ListenForWork(WorkListener listener) noexcept;

// For reports: fills in operation, stack, python_stack, stream and the direction. For the token of
// a launch: the stream only. False: not known (any more).
bool DescribeOperation(uint64_t token, AccessDescription* access);

}  // namespace ops_debug::interposer
