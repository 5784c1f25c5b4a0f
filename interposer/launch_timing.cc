// Pairs of events around sampled launches (launch_timing.h).
#include "interposer/launch_timing.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/launch_record.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMeasuredFirst = 3;
constexpr uint64_t kMeasuredOneIn = 64;
// Pairs of events in all contexts together.
constexpr size_t kMostPairs = 256;
constexpr std::chrono::milliseconds kHarvestInterval{10};
// What an event can resolve; no kernel is measured shorter.
constexpr uint64_t kResolution_ns = 500;

bool IsMeasured(uint64_t launch) { return launch < kMeasuredFirst || launch % kMeasuredOneIn == 0; }

struct Pair {
  CUevent begin = nullptr;
  CUevent end = nullptr;
};

}  // namespace

struct LaunchTimer::Pending {
  ModulePointer module;  // keeps the kernel alive
  KernelRecord* kernel = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  Pair pair;
  Clock::time_point launched;
  uint64_t launch_call_ns = 0;  // that lies between the two events
};

// The pool and what is under way. Never destroyed: hooks run until the very end of the process.
struct LaunchTimes {
  std::mutex mutex;
  std::vector<std::unique_ptr<LaunchTimer::Pending>> outstanding;
  std::unordered_map<CUcontext, std::vector<Pair>> idle;
  std::atomic<size_t> pairs{0};
  std::atomic<bool> any{false};  // outstanding is not empty

  static LaunchTimes& Get() {
    static auto* times = new LaunchTimes;
    return *times;
  }

  // The context must be current. False: none is to be had.
  bool Take(CUcontext context, Pair* pair);
  void GiveBack(CUcontext context, const Pair& pair) {
    std::lock_guard lock(mutex);
    idle[context].push_back(pair);
  }
  void Harvest();
  // Once in a while: asking for each pair takes time, and a GPU that is far behind has none ready.
  bool HarvestIsDue() {
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep before = last_harvest.load(std::memory_order_relaxed);
    return now - before > Clock::duration(kHarvestInterval).count() &&
           last_harvest.compare_exchange_strong(before, now);
  }
  std::atomic<Clock::rep> last_harvest{0};
};

bool LaunchTimes::Take(CUcontext context, Pair* pair) {
  {
    std::lock_guard lock(mutex);
    std::vector<Pair>& free = idle[context];
    if (!free.empty()) {
      *pair = free.back();
      free.pop_back();
      return true;
    }
  }
  if (pairs.fetch_add(1) >= kMostPairs) {
    pairs.fetch_sub(1);
    return false;
  }
  if (OPS_DEBUG_REAL(cuEventCreate)(&pair->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
    if (OPS_DEBUG_REAL(cuEventCreate)(&pair->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) return true;
    OPS_DEBUG_REAL(cuEventDestroy_v2)(pair->begin);
  }
  pairs.fetch_sub(1);
  return false;
}

void LaunchTimes::Harvest() {
  std::lock_guard lock(mutex);
  std::erase_if(outstanding, [this](const std::unique_ptr<LaunchTimer::Pending>& pending) {
    InternalCalls calls(pending->context);
    const CUresult state =
        calls.ok() ? OPS_DEBUG_REAL(cuEventQuery)(pending->pair.end) : CUDA_ERROR_INVALID_CONTEXT;
    if (state == CUDA_ERROR_NOT_READY) return false;
    float elapsed_ms = 0;
    if (state != CUDA_SUCCESS ||
        OPS_DEBUG_REAL(cuEventElapsedTime)(&elapsed_ms, pending->pair.begin, pending->pair.end) !=
            CUDA_SUCCESS) {
      return true;  // the context is broken, and its events with it
    }
    const auto elapsed_ns = static_cast<uint64_t>(std::max(elapsed_ms, 0.f) * 1e6f);
    const uint64_t duration_ns =
        std::max(elapsed_ns - std::min(elapsed_ns, pending->launch_call_ns), kResolution_ns);
    pending->kernel->timing.timed_duration_ns += duration_ns;
    pending->kernel->timing.timed_launches += 1;
    EnterSummary(pending->module, *pending->kernel);
    idle[pending->context].push_back(pending->pair);
    return true;
  });
  any = !outstanding.empty();
}

LaunchTimer::LaunchTimer(const ModulePointer& module, KernelRecord& kernel, CUstream stream,
                         bool capturing) {
  if (capturing) return;
  if (!IsMeasured(kernel.timing.launches.fetch_add(1, std::memory_order_relaxed))) return;
  CUcontext context = nullptr;
  const bool default_stream = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  const CUresult found = default_stream ? OPS_DEBUG_REAL(cuCtxGetCurrent)(&context)
                                        : OPS_DEBUG_REAL(cuStreamGetCtx)(stream, &context);
  if (found != CUDA_SUCCESS || context == nullptr) return;
  InternalCalls calls(context);
  if (!calls.ok()) return;
  LaunchTimes& times = LaunchTimes::Get();
  auto pending = std::make_unique<Pending>();
  if (!times.Take(context, &pending->pair)) {
    // A program that never waits drains nothing.
    if (!times.HarvestIsDue()) return;
    times.Harvest();
    if (!times.Take(context, &pending->pair)) return;
  }
  if (OPS_DEBUG_REAL(cuEventRecord)(pending->pair.begin, stream) != CUDA_SUCCESS) {
    times.GiveBack(context, pending->pair);
    return;
  }
  pending->module = module;
  pending->kernel = &kernel;
  pending->context = context;
  pending->stream = stream;
  pending->launched = Clock::now();
  pending_ = std::move(pending);
}

LaunchTimer::~LaunchTimer() {
  if (!pending_) return;
  try {
    LaunchTimes::Get().GiveBack(pending_->context, pending_->pair);
  } catch (...) {  // no memory: two events fewer
  }
}

void LaunchTimer::Finish() {
  if (!pending_) return;
  const auto call = Clock::now() - pending_->launched;
  InternalCalls calls(pending_->context);
  if (!calls.ok()) return;
  // The first event has happened before the kernel was there: the stream was idle, and the time
  // between the events holds the launch call. Else the stream was still busy with earlier work.
  if (OPS_DEBUG_REAL(cuEventQuery)(pending_->pair.begin) == CUDA_SUCCESS) {
    pending_->launch_call_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(call).count());
  }
  if (OPS_DEBUG_REAL(cuEventRecord)(pending_->pair.end, pending_->stream) != CUDA_SUCCESS) return;
  LaunchTimes& times = LaunchTimes::Get();
  std::lock_guard lock(times.mutex);
  times.outstanding.push_back(std::move(pending_));
  times.any = true;
}

void HarvestLaunchTimes() noexcept {
  LaunchTimes& times = LaunchTimes::Get();
  if (!times.any.load(std::memory_order_relaxed)) return;
  try {
    times.Harvest();
  } catch (...) {  // no memory: these times are missing
  }
}

void ForgetLaunchTimes(CUcontext context) {
  LaunchTimes& times = LaunchTimes::Get();
  std::lock_guard lock(times.mutex);
  std::vector<Pair> pairs;
  std::erase_if(times.outstanding, [&](const auto& pending) {
    if (pending->context != context) return false;
    pairs.push_back(pending->pair);
    return true;
  });
  if (const auto idle = times.idle.find(context); idle != times.idle.end()) {
    pairs.insert(pairs.end(), idle->second.begin(), idle->second.end());
    times.idle.erase(idle);
  }
  times.any = !times.outstanding.empty();
  if (pairs.empty()) return;
  times.pairs -= pairs.size();
  // A release of a primary context need not be its end.
  InternalCalls calls(context);
  if (!calls.ok()) return;
  for (const Pair& pair : pairs) {
    OPS_DEBUG_REAL(cuEventDestroy_v2)(pair.begin);
    OPS_DEBUG_REAL(cuEventDestroy_v2)(pair.end);
  }
}

}  // namespace ops_debug::interposer
