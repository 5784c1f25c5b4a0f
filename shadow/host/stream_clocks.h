// Which stream work is ordered behind which: vector clocks (Mattern 1989; Fidge 1988) with one
// component per stream (and slot 0, the host's). The order that is promised, not the one that
// happened: CUDA Driver API, "Stream synchronization behavior", "API synchronization behavior",
// "Event Management", "Stream Ordered Memory Allocator"; CUDA C++ Programming Guide,
// "Asynchronous Concurrent Execution", "Programmatic Dependent Launch".
//
// - An operation comes after the earlier ones of its stream, after what its stream waited for, and
//   after everything that the host knew to be done when it submitted the operation.
// - The legacy default stream of a context comes after all earlier work of the context's blocking
//   streams, and their later work comes after it. Per-thread default streams are blocking streams.
// - An event stands for what its stream had to do when it was recorded the last time. Waiting for
//   an event that was never recorded orders nothing.
// - All threads of the host share one clock. How they synchronise among themselves is not
//   seen, so the order in which their calls were really made counts as promised.
// - A stream that waits for something that cannot be seen (a value in memory, an external
//   semaphore, an event of another process) is open: its later work is taken to come after
//   everything, until the host has waited for the stream.
//
// Not thread-safe: the caller holds a lock. Nothing here waits or calls the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "shadow/abi/emulator_checks.h"

namespace ops_debug::shadow {

// Component i: the number of the latest operation of slot i that comes before. Missing components
// are 0.
using VectorClock = std::vector<uint64_t>;

void Join(VectorClock& clock, const VectorClock& other);
// Every component of `clock` is at most that of `other`.
bool IsCovered(const VectorClock& clock, const VectorClock& other);

inline constexpr uint32_t kHostSlot = 0;

enum class StreamKind : uint8_t { kBlocking, kNonBlocking, kLegacy };

// A moment: all work that has to be done before it is reached.
struct OrderPoint {
  VectorClock clock;
  bool open = false;           // and more, that is not known
  uint32_t slot = UINT32_MAX;  // of the stream it was asked of
};

// What a piece of work comes after.
struct SubmittedOperation {
  OperationId id;
  VectorClock clock;  // its own number included
  // Until a programmatic dependent launch waits for the grids before it (griddepcontrol.wait), it
  // comes only after this.
  std::optional<VectorClock> early_clock;
  // It comes after something unseen: its clock says that it comes after everything.
  bool open = false;

  // Valid as long as this object.
  OperationOrder Order(uint64_t token) const;
};

// True if `before` is done when `operation` begins to use memory; for a programmatic dependent
// launch, once it has waited.
bool ComesBefore(const OperationId& before, const SubmittedOperation& operation);

enum class OperationKind : uint8_t {
  kKernel,
  kProgrammaticKernel,  // may start when the kernel before it in the stream allows it
  kOther,
};

class StreamClocks {
 public:
  // Answers the slot. A context has at most one legacy default stream: asking again gives the same.
  uint32_t AddStream(StreamKind kind, uint64_t context);
  // Its pending work stays; the slot is used again once the host knows that the work is done.
  void RemoveStream(uint32_t slot);
  // All streams of a context that is gone.
  void RemoveContext(uint64_t context);

  // Stream work.
  SubmittedOperation Submit(uint32_t slot, OperationKind kind);
  // Work that comes after everything in these contexts and before all later work there
  // (cuMemcpyPeer).
  SubmittedOperation SubmitSerialised(uint32_t slot, const std::vector<uint64_t>& contexts);

  // Events, by the caller's names for them.
  // The answer is the recording itself, which touches no memory.
  SubmittedOperation RecordEvent(uint64_t event, uint32_t slot);
  // The event that a launch records as soon as all its blocks have begun
  // (CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT): it stands for what came before that launch, the
  // latest operation of the stream.
  void RecordLaunchBegun(uint64_t event, uint32_t slot);
  void WaitEvent(uint32_t slot, uint64_t event);
  // Others may record it, too (interprocess events).
  void ShareEvent(uint64_t event);
  void ForgetEvent(uint64_t event);
  // The stream waits for something unseen.
  void WaitUnseen(uint32_t slot);
  // The stream comes after the point.
  void WaitPoint(uint32_t slot, const OrderPoint& point);

  // What the host will know to be done once it has waited. Ask before the wait, join after it.
  OrderPoint PointOfStream(uint32_t slot);
  OrderPoint PointOfEvent(uint64_t event) const;
  OrderPoint PointOfContext(uint64_t context) const;
  OrderPoint PointOfAll() const;
  void HostJoins(const OrderPoint& point);

  bool IsRemoved(uint32_t slot) const { return slot < streams_.size() && streams_[slot].removed; }
  const VectorClock& host_clock() const { return host_; }

 private:
  struct Stream {
    StreamKind kind = StreamKind::kBlocking;
    uint64_t context = 0;
    bool removed = false;
    bool open = false;
    VectorClock clock;    // what the next operation comes after
    uint64_t number = 0;  // of the latest operation
    // What the latest operation came after before it began, if that was a kernel's launch and
    // nothing was waited for since.
    std::optional<VectorClock> begin_of_kernel;
  };
  struct Event {
    VectorClock clock;
    bool open = false;
    bool shared = false;
  };

  // Joins what a command in the stream implicitly waits for.
  Stream& Touch(uint32_t slot);
  // From now on, by a command of its own: who knows the stream's latest number knows whether it was
  // open then.
  static void Open(uint32_t slot, Stream& stream);
  SubmittedOperation Number(uint32_t slot, Stream& stream);
  VectorClock Everything() const;

  VectorClock host_ = VectorClock(1, 0);
  std::vector<Stream> streams_ = std::vector<Stream>(1);  // by slot; 0 is the host's
  std::unordered_map<uint64_t, uint32_t> legacy_;         // by context
  // What streams that are still to be made come after, by context.
  std::unordered_map<uint64_t, VectorClock> serialised_;
  std::unordered_map<uint64_t, Event> events_;
};

}  // namespace ops_debug::shadow
