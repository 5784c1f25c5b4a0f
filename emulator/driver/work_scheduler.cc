// The choice among ready operations, the workers that carry it out, and waiting.
#include "emulator/driver/work_scheduler.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace ops_debug::emulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long the operation whose turn it is may hold up the others: while it cannot start, and while
// it runs. A kernel that is merely slow should not be overtaken.
constexpr milliseconds kBlockedPatience{20}, kRunningPatience{500};
// How often a wait for a value in memory is looked at.
constexpr microseconds kPollInterval{200};
// With a seed: work goes on if the host has not called for so long, in time that it computed (a
// busy machine must not change the schedule) or, if it sleeps, in time that has passed.
constexpr milliseconds kHostSilence{200}, kHostSleep{2000}, kSilenceInterval{50};
// A context that is being destroyed gives up work that nothing has moved for so long.
constexpr milliseconds kDrainPatience{1000};
// A process that exits waits for a running kernel no longer than this.
constexpr milliseconds kExitPatience{10'000};
constexpr unsigned kMaxThreadsPerLane = 8;

// Starts a thread that no signal of the program is delivered to.
template <class Body>
bool StartThread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), "cuda-emulator");  // as a driver names its own
    thread.detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

// Time that the process has computed, all threads together.
std::chrono::nanoseconds ProcessTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

bool HoldsValue(const MemoryWaitOperation& wait) {
  const uint64_t found =
      wait.bytes == 8
          ? __atomic_load_n(reinterpret_cast<const uint64_t*>(wait.address), __ATOMIC_ACQUIRE)
          : __atomic_load_n(reinterpret_cast<const uint32_t*>(wait.address), __ATOMIC_ACQUIRE);
  switch (wait.flags & 3u) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == wait.value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & wait.value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return wait.bytes == 8 ? ~(found | wait.value) != 0
                             : ~(uint32_t(found) | uint32_t(wait.value)) != 0;
    default:  // CU_STREAM_WAIT_VALUE_GEQ compares cyclically
      return wait.bytes == 8 ? int64_t(found - wait.value) >= 0
                             : int32_t(uint32_t(found) - uint32_t(wait.value)) >= 0;
  }
}

}  // namespace

void HostThread::Queue(std::function<void()> call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!started_) {
    if (!StartThread([this] { Work(); })) throw std::bad_alloc();
    started_ = true;
  }
  calls_.push_back(std::move(call));
  arrived_.notify_one();
}

void HostThread::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [&] { return !calls_.empty(); });
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    InHostFunction() = true;
    call();
    InHostFunction() = false;
    lock.lock();
  }
}

WorkScheduler::WorkScheduler(size_t device_count, std::optional<uint64_t> seed)
    : is_seeded_(seed.has_value()), random_(seed.value_or(0)) {
  HostCalled();
  lanes_.resize(is_seeded_ ? 1 : device_count);
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].index = i;
}

size_t WorkScheduler::LaneOf(const StreamOrder& order) const {
  return is_seeded_ ? 0 : size_t(order.context_->device->ordinal);
}

StreamPoint WorkScheduler::Add(const std::shared_ptr<StreamOrder>& order, Operation operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operation.number = next_number_++;
  std::erase_if(operation.after, [&](const StreamPoint& point) { return IsReached(point); });
  if (order->pending_.empty()) active_.push_back(order);
  order->pending_.push_back(std::move(operation));
  const StreamPoint point{order, ++order->submitted_};
  if (auto* record = std::get_if<EventRecordOperation>(&order->pending_.back().work)) {
    record->mark->point = point;
  }
  if (is_seeded_) {
    HostCalled();
    // Mostly as late as possible: that is what a missing synchronisation shows under.
    if (random_() % 4 == 0) offered_ += 1 + unsigned(random_() % 2);
  }
  Lane& lane = lanes_[LaneOf(*order)];
  if (lane.threads == 0) StartWorker(lane);
  lanes_.size() == 1 ? work_arrived_.notify_one() : work_arrived_.notify_all();
  return point;
}

void WorkScheduler::HostCalled() {
  if (!is_seeded_) return;
  last_call_ = Clock::now();
  last_call_process_time_ = ProcessTime();
}

StreamPoint WorkScheduler::Latest(const std::shared_ptr<StreamOrder>& order) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {order, order->submitted_};
}

std::vector<StreamPoint> WorkScheduler::BlockingWork(const CUctx_st& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<StreamPoint> points;
  for (const std::shared_ptr<StreamOrder>& order : active_) {
    if (order->context_ != &context || !order->is_blocking_) continue;
    points.push_back({order, order->submitted_});
  }
  return points;
}

// Whether the front operation, which does not run yet, has to wait for something.
bool WorkScheduler::IsBlocked(StreamOrder& order) const {
  Operation& front = order.pending_.front();
  std::erase_if(front.after, [&](const StreamPoint& point) { return IsReached(point); });
  if (!front.after.empty()) return true;
  const auto* wait = std::get_if<MemoryWaitOperation>(&front.work);
  return wait != nullptr && order.context_->sticky_error == CUDA_SUCCESS && !HoldsValue(*wait);
}

// With a seed: whether the host lets work go on at present.
bool WorkScheduler::MayWork(Clock::time_point now, std::optional<Clock::time_point>* look_again) {
  if (!is_seeded_ || permits_ > 0) return true;
  for (const Predicate* done : waiters_) {
    if (!(*done)()) return true;
  }
  const bool is_silent = ProcessTime() - last_call_process_time_ >= kHostSilence;
  if (is_silent || now - last_call_ >= kHostSleep) return true;
  *look_again = now + kSilenceInterval;
  return false;
}

WorkScheduler::Choice WorkScheduler::Choose(const Lane& lane) {
  Choice choice;
  Orders orders;
  for (const std::shared_ptr<StreamOrder>& order : active_) {
    if (LaneOf(*order) == lane.index) orders.push_back(order);
  }
  if (orders.empty()) return choice;
  const Clock::time_point now = Clock::now();
  if (!MayWork(now, &choice.look_again)) return choice;
  std::sort(orders.begin(), orders.end(), [](const auto& a, const auto& b) {
    return a->pending_.front().number < b->pending_.front().number;
  });
  Orders ready;
  for (const std::shared_ptr<StreamOrder>& order : orders) {
    if (!order->is_running_ && !IsBlocked(*order)) {
      ready.push_back(order);
      if (!is_seeded_) break;
      continue;
    }
    const Operation& front = order->pending_.front();
    // Whatever else an operation waits for says so when it is done.
    const bool polls = !order->is_running_ && front.after.empty();
    if (polls) choice.look_again = now + kPollInterval;
    // With a seed, what waits for other operations is not stuck: those may have to be picked first.
    if (is_seeded_ && !order->is_running_) continue;
    if (!order->stuck_since_) order->stuck_since_ = now;
    const bool computes = order->is_running_ && !std::holds_alternative<HostOperation>(front.work);
    const Clock::time_point overtake =
        *order->stuck_since_ + (computes ? kRunningPatience : kBlockedPatience);
    if (now >= overtake) continue;
    if (!polls) choice.look_again = overtake;
    return choice;
  }
  if (!ready.empty()) choice.order = ready[is_seeded_ ? random_() % ready.size() : 0];
  return choice;
}

void WorkScheduler::Take(StreamOrder& order) {
  order.is_running_ = true;
  order.stuck_since_ = Clock::now();
  if (permits_ > 0) --permits_;
}

void WorkScheduler::Progressed() {
  last_progress_ = Clock::now();
  work_done_.notify_all();
  if (!active_.empty()) {
    lanes_.size() == 1 ? work_arrived_.notify_one() : work_arrived_.notify_all();
  }
}

void WorkScheduler::Finish(StreamOrder& order, CUresult status) {
  if (status != CUDA_SUCCESS) {
    CUresult healthy = CUDA_SUCCESS;
    order.context_->sticky_error.compare_exchange_strong(healthy, status);
  }
  order.pending_.pop_front();
  ++order.completed_;
  order.is_running_ = false;
  order.stuck_since_.reset();
  if (order.pending_.empty()) {
    std::erase_if(active_, [&](const auto& active) { return active.get() == &order; });
  }
  Progressed();
}

// Does the front operation of `order`, which has been taken, with `lock` released. A host function
// goes to its thread and is finished there.
void WorkScheduler::Do(std::unique_lock<std::mutex>& lock,
                       const std::shared_ptr<StreamOrder>& order) {
  Operation& front = order->pending_.front();  // stays where it is while it runs
  lock.unlock();
  if (std::holds_alternative<HostOperation>(front.work)) {
    bool queued = true;
    try {
      host_thread_.Queue([this, order, &front] {
        const HostOperation host = std::get<HostOperation>(front.work);
        CallHost(host, order->context_->sticky_error);
        const std::lock_guard<std::mutex> relock(mutex_);
        Finish(*order, CUDA_SUCCESS);
      });
    } catch (...) {
      queued = false;
    }
    lock.lock();
    if (!queued) Finish(*order, CUDA_ERROR_OUT_OF_MEMORY);
    return;
  }
  CUresult status = CUDA_SUCCESS;
  try {
    status = Perform(*order->context_->device, front);
  } catch (const std::bad_alloc&) {
    status = CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    status = CUDA_ERROR_UNKNOWN;
  }
  lock.lock();
  Finish(*order, status);
}

void WorkScheduler::StartWorker(Lane& lane) {
  if (StartThread([this, &lane] { Work(lane); })) ++lane.threads;
}

void WorkScheduler::Work(Lane& lane) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const Choice choice = Choose(lane);
    if (choice.order != nullptr) {
      Take(*choice.order);
      // Somebody has to be there if this operation does not come to its end.
      if (lane.idle_threads == 0 && lane.threads < kMaxThreadsPerLane) StartWorker(lane);
      Do(lock, choice.order);
      continue;
    }
    // Nothing can be done: Settle need not wait. While something runs, that is not known yet: what
    // comes after it must not depend on which of the workers looks first.
    if (permits_ > 0 && !IsAnythingRunning()) {
      permits_ = 0;
      work_done_.notify_all();
    }
    ++lane.idle_threads;
    if (choice.look_again) {
      work_arrived_.wait_until(lock, *choice.look_again);
    } else {
      work_arrived_.wait(lock);
    }
    --lane.idle_threads;
  }
}

// An order that the points refer to and whose front operation may be done at once.
WorkScheduler::Choice WorkScheduler::ChooseFor(const std::vector<StreamPoint>& points) {
  for (const StreamPoint& point : points) {
    if (IsReached(point)) continue;
    Lane& lane = lanes_[LaneOf(*point.order)];
    if (is_seeded_ && lane.threads != 0) return {};
    Choice choice = Choose(lane);
    // Only what leads to the points: other work might wait for what this thread does next.
    const bool leads_there = std::any_of(
        points.begin(), points.end(),
        [&](const StreamPoint& other) { return other.order == choice.order && !IsReached(other); });
    return leads_there ? choice : Choice{};
  }
  return {};
}

void WorkScheduler::BeginExit() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_exiting_ = true;
  last_progress_ = Clock::now();
  work_done_.notify_all();
}

bool WorkScheduler::IsAnythingRunning() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const auto& order) { return order->is_running_; });
}

// Waits a little; false: there has been no progress for too long.
bool WorkScheduler::WaitAtExit(std::unique_lock<std::mutex>& lock) {
  work_done_.wait_until(lock, Clock::now() + kDrainPatience / 10);
  const auto patience = IsAnythingRunning() ? kExitPatience : kDrainPatience;
  if (Clock::now() - last_progress_ < patience) return true;
  has_given_up_ = true;
  return false;
}

void WorkScheduler::Wait(const std::vector<StreamPoint>& points) {
  const Predicate done = [&] {
    return std::all_of(points.begin(), points.end(),
                       [&](const StreamPoint& point) { return IsReached(point); });
  };
  std::unique_lock<std::mutex> lock(mutex_);
  HostCalled();
  if (done()) return;
  const auto self = waiters_.insert(waiters_.end(), &done);
  work_arrived_.notify_all();
  while (!done()) {
    const Choice choice = ChooseFor(points);
    if (choice.order != nullptr) {
      Take(*choice.order);
      Do(lock, choice.order);
    } else if (!is_exiting_) {
      work_done_.wait(lock);
    } else if (!WaitAtExit(lock)) {
      break;
    }
  }
  waiters_.erase(self);
  HostCalled();
}

void WorkScheduler::WaitForContext(const CUctx_st& context) {
  std::vector<StreamPoint> points;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::shared_ptr<StreamOrder>& order : active_) {
      if (order->context_ == &context) points.push_back({order, order->submitted_});
    }
  }
  Wait(points);
}

void WorkScheduler::WaitForDevice(const Device& device) {
  std::vector<StreamPoint> points;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::shared_ptr<StreamOrder>& order : active_) {
      if (order->context_->device == &device) points.push_back({order, order->submitted_});
    }
  }
  Wait(points);
}

bool WorkScheduler::HasWork(const CUctx_st* context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(active_.begin(), active_.end(),
                     [&](const auto& order) { return order->context_ == context; });
}

void WorkScheduler::Drain(const CUctx_st* context) {
  const auto is_ours = [&](const std::shared_ptr<StreamOrder>& order) {
    return order->context_ == context;
  };
  const Predicate done = [&] { return std::none_of(active_.begin(), active_.end(), is_ours); };
  std::unique_lock<std::mutex> lock(mutex_);
  last_progress_ = Clock::now();
  const auto self = waiters_.insert(waiters_.end(), &done);
  work_arrived_.notify_all();
  while (!done()) {
    if (is_exiting_) {
      if (!WaitAtExit(lock)) break;
      continue;
    }
    work_done_.wait_until(lock, Clock::now() + kDrainPatience);
    if (IsAnythingRunning() || Clock::now() - last_progress_ < kDrainPatience) continue;
    for (const std::shared_ptr<StreamOrder>& order : active_) {
      if (!is_ours(order)) continue;
      order->completed_ = order->submitted_;
      order->pending_.clear();
    }
    std::erase_if(active_, is_ours);
    Progressed();
  }
  waiters_.erase(self);
}

bool WorkScheduler::AreReached(const std::vector<StreamPoint>& points) {
  if (is_seeded_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      offered_ += unsigned(random_() % 3);
    }
    Settle();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(points.begin(), points.end(),
                     [&](const StreamPoint& point) { return IsReached(point); });
}

void WorkScheduler::Settle() {
  if (!is_seeded_) return;
  std::unique_lock<std::mutex> lock(mutex_);
  HostCalled();
  permits_ = std::exchange(offered_, 0u);
  if (permits_ == 0 || active_.empty()) return;
  work_arrived_.notify_all();
  // An operation that does not come to its end must not hold up the host.
  work_done_.wait_for(lock, kRunningPatience,
                      [&] { return active_.empty() || (permits_ == 0 && !IsAnythingRunning()); });
  permits_ = 0;
}

}  // namespace ops_debug::emulator
