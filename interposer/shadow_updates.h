// Shadow memory of frameworks' memory pools, kept up to date while the program runs. Pools hand out
// and take back a thousand blocks per training step; each changes a few bytes of shadow memory. The
// changes are collected on the host (shadow/host/pool_marks.h) and written by one small kernel
// before the next launch that could see them.
//
// Order. A block must be valid before any kernel that is enqueued after its hand-out, on any
// stream; it may become invalid only when every kernel that was enqueued before its release has
// ended. While one stream is active, its own order gives both, and the updates run in it. With
// several active streams, updates run in a stream of ours that later launches wait for, and a
// release waits for its batch: the batch is closed by recording an event on every active stream,
// and has ended when these events have. A stream stops being active when such an event ended and
// nothing was launched in it since, or when it is found idle because somebody asks for a release.
//
// Patience. Training loops take memory again that they gave back a moment ago; marks that made it
// invalid in between would have to be undone before the very next launch. So a release waits for
// kPatientLaunches launches, unless a launch mentions the memory in its parameters, or a graph
// runs.
//
// Captures. Nothing is enqueued in a capturing stream, and while any stream captures no event is
// recorded in a stream other than the one that is about to be used. Blocks that are handed out
// under capture stay valid as long as their segment lives, because the graph uses them whenever it
// is replayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "interposer/driver_table.h"
#include "shadow/abi/device_abi.h"
#include "shadow/host/pool_marks.h"

namespace ops_debug::interposer {

struct ContextState;

// Call before anything that can run checked kernels is enqueued on `explicit_stream` (a twin, a
// kernel that the SASS engine patched, a graph), with the context current or not. Does nothing, at
// the price of one load, in processes without pools; nothing while the stream is being captured.
void ApplyShadowUpdates(ContextState& state, CUstream explicit_stream);
// The same before a graph runs: what its kernels use is not known.
void ApplyAllShadowUpdates(ContextState& state, CUstream explicit_stream);

// Of one context. Thread-safe.
class ShadowUpdates {
 public:
  explicit ShadowUpdates(ContextState& state) : state_(state) {}
  ShadowUpdates(const ShadowUpdates&) = delete;
  ShadowUpdates& operator=(const ShadowUpdates&) = delete;

  // Valid memory becomes a pool's that holds no block yet; `empty` memory of it must not be used
  // then. False: no device memory for its shadow.
  bool AdoptSegment(uint64_t address, uint64_t size_bytes, bool empty);
  // The memory is no pool's any more; returns when no update of ours touches it any more. Call
  // before it is marked otherwise.
  void DropSegment(uint64_t address, uint64_t size_bytes);

  // A block of an adopted segment: `size_bytes` are addressable, the rest of it is not.
  // `for_graph`: graphs use it, as in Keep.
  void HandedOut(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes, bool for_graph);
  // Captured graphs use the block whenever they are replayed: it stays valid while its segment
  // lives.
  void Keep(uint64_t address, uint64_t size_bytes);
  void GivenBack(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes);

  // True if some release waits for its time: then launches should say what they mention.
  bool patient() const { return patient_.load(std::memory_order_acquire); }
  // True if the address may be a pool's; cheap.
  bool MayHold(uint64_t address) const {
    return address - low_.load(std::memory_order_relaxed) < span_.load(std::memory_order_relaxed);
  }
  // A launch mentions these addresses.
  void Demand(std::span<const uint64_t> addresses);
  void DemandAll();

  void Apply(CUstream explicit_stream);
  // Before the program destroys a stream.
  void StreamEnds(CUstream stream);

 private:
  struct ActiveStream {
    CUstream stream = nullptr;
    std::thread::id thread;     // of CU_STREAM_PER_THREAD, which is another stream in each
    CUevent update = nullptr;   // behind the latest update that ran in it
    bool has_update = false;    // `update` was recorded
    uint64_t launches = 0;      // number of its latest call of Apply …
    std::thread::id caller;     // … and who made it
    uint64_t seen_version = 0;  // of our stream's updates that it waits for
  };
  struct Batch {
    uint64_t number = 0;
    struct Recorded {
      CUstream stream = nullptr;
      uint64_t launches = 0;
      CUevent event = nullptr;
    };
    std::vector<Recorded> recorded;
  };

  bool Ready();  // our stream and kernels exist
  ActiveStream* Enter(CUstream stream);
  void PollBatches();
  void CloseBatch();
  void DropIdleStreams(CUstream except);
  bool WaitForOwn(ActiveStream& stream);
  bool WriteMarks(CUstream stream);
  void MarksChanged();
  bool Launch(CUstream stream, const std::vector<shadow::ShadowUpdate>& updates);
  CUevent NewEvent();
  void Lose();

  ContextState& state_;
  std::atomic<bool> used_{false};   // there is a pool
  std::atomic<bool> dirty_{false};  // marks are waiting, or a batch is
  std::atomic<bool> patient_{false};
  std::atomic<uint64_t> low_{0}, span_{0};  // of all pools together
  std::atomic<CUstream> only_{nullptr};     // the one active stream, if it has nothing to wait for

  std::mutex mutex_;  // guards the rest
  shadow::PoolMarks marks_;
  std::vector<ActiveStream> active_;
  uint64_t launches_ = 0;
  CUstream own_ = nullptr;
  CUevent own_event_ = nullptr;  // behind the latest update in `own_`
  uint64_t version_ = 0;         // of `own_event_`
  CUmodule module_ = nullptr;
  CUfunction few_ = nullptr, many_ = nullptr;
  bool failed_ = false;
  uint64_t open_batch_ = 1;  // that releases belong to now
  uint64_t open_releases_ = 0;
  bool demanded_ = false;  // what was released shall be seen soon
  uint64_t open_launches_ = 0;
  uint64_t ended_batch_ = 0;
  std::vector<Batch::Recorded> leftover_;  // events of destroyed streams, for the open batch
  std::vector<Batch> closed_;
  std::vector<CUevent> spare_events_;
  std::vector<shadow::ShadowMark> scratch_;
};

}  // namespace ops_debug::interposer
