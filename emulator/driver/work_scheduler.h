// The order in which the devices' stream work is done.
//
// Every stream is a StreamOrder: a queue of operations that are done one after the other. An
// operation at the front of its queue is ready once the points in other streams that it has to come
// after (events, the legacy default stream's implicit synchronisation) are reached. Which of the
// ready operations is done next is this class's choice, and every choice is a legal order:
//
// - Without a seed: in the order of submission, one operation of a device at a time, beside the
//   host. That is deterministic but for the host's progress. If the operation whose turn it is
//   cannot go on (a host function or a wait for a value in memory that takes long, a kernel that
//   spins on what a later copy brings), those behind it overtake it after a while: a GPU would have
//   run them at the same time.
// - With a seed: nothing is done before the host waits or asks; then ready operations are picked
//   pseudo-randomly, until what the host waits for is done. If the host submits nothing and asks
//   nothing for a while, the work goes on: it may be polling memory.
//
// A host thread that waits does the next operation itself where the order allows: no switch of
// threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "emulator/driver/operation.h"

namespace ops_debug::emulator {

// One thread that calls what has to be called on a thread of its own: host functions of streams.
class HostThread {
 public:
  // `call` runs behind all earlier ones. Starts the thread if there is none yet.
  void Queue(std::function<void()> call);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> calls_;
  bool started_ = false;
};

// One stream's queue. Guarded by the scheduler's mutex; it outlives its stream as long as somebody
// refers to a point in it.
class StreamOrder {
 public:
  StreamOrder(CUctx_st* context, bool is_blocking) : context_(context), is_blocking_(is_blocking) {}

 private:
  friend class WorkScheduler;
  using Clock = std::chrono::steady_clock;

  CUctx_st* const context_;
  const bool is_blocking_;  // takes part in the legacy default stream's synchronisation
  std::deque<Operation> pending_;
  uint64_t submitted_ = 0, completed_ = 0;
  bool is_running_ = false;                       // the front operation
  std::optional<Clock::time_point> stuck_since_;  // the front operation has its turn since then
};

class WorkScheduler {
 public:
  WorkScheduler(size_t device_count, std::optional<uint64_t> seed);

  // Queues `operation` and returns the point behind it.
  StreamPoint Add(const std::shared_ptr<StreamOrder>& order, Operation operation);
  StreamPoint Latest(const std::shared_ptr<StreamOrder>& order);
  // Behind all pending work of the context's blocking streams.
  std::vector<StreamPoint> BlockingWork(const CUctx_st& context);

  // Not with the driver's lock held. While the process exits, waiting ends after a time without
  // progress; has_given_up() then says that the devices' state must be left alone.
  void Wait(const std::vector<StreamPoint>& points);
  void WaitForContext(const CUctx_st& context);
  void WaitForDevice(const Device& device);
  // Waits for the context's work, but gives up what can never go on (a wait for a value that nobody
  // is left to write). `context` need not be alive.
  void Drain(const CUctx_st* context);
  bool HasWork(const CUctx_st* context);
  bool AreReached(const std::vector<StreamPoint>& points);
  // In a chosen schedule: does what the calls since the last time allowed to be done early.
  void Settle();

  void BeginExit();
  bool has_given_up() const { return has_given_up_; }

  bool is_seeded() const { return is_seeded_; }
  HostThread& host_thread() { return host_thread_; }

 private:
  using Clock = StreamOrder::Clock;
  using Orders = std::vector<std::shared_ptr<StreamOrder>>;
  using Predicate = std::function<bool()>;  // evaluated with mutex_ held

  // An operation that may be done now, or when to look again.
  struct Choice {
    std::shared_ptr<StreamOrder> order;
    std::optional<Clock::time_point> look_again;
  };

  struct Lane {  // the workers of one device, or of all with a seed
    size_t index = 0;
    unsigned threads = 0, idle_threads = 0;
  };

  bool IsReached(const StreamPoint& point) const {
    return point.order == nullptr || point.order->completed_ >= point.count;
  }
  size_t LaneOf(const StreamOrder& order) const;
  bool IsBlocked(StreamOrder& order) const;
  void HostCalled();
  bool MayWork(Clock::time_point now, std::optional<Clock::time_point>* look_again);
  Choice Choose(const Lane& lane);
  void Take(StreamOrder& order);
  void Do(std::unique_lock<std::mutex>& lock, const std::shared_ptr<StreamOrder>& order);
  void Finish(StreamOrder& order, CUresult status);
  bool IsAnythingRunning() const;
  bool WaitAtExit(std::unique_lock<std::mutex>& lock);
  Choice ChooseFor(const std::vector<StreamPoint>& points);
  void StartWorker(Lane& lane);
  void Work(Lane& lane);
  void Progressed();

  const bool is_seeded_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable work_arrived_, work_done_;
  std::deque<Lane> lanes_;
  Orders active_;  // with pending operations, by their first submission
  uint64_t next_number_ = 0;
  std::list<const Predicate*> waiters_;
  // With a seed: operations that may be done although nobody waits; those that the next Settle
  // permits.
  unsigned permits_ = 0, offered_ = 0;
  Clock::time_point last_call_, last_progress_;
  std::chrono::nanoseconds last_call_process_time_{0};
  bool is_exiting_ = false;
  std::atomic<bool> has_given_up_{false};
  HostThread host_thread_;
};

}  // namespace ops_debug::emulator
