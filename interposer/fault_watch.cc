// Faults that are drained soon anyway are left alone: only then their counts are known. So a fault
// must have been there for some time before this thread reports it.
#include "interposer/fault_watch.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "interposer/fault_drain.h"
#include "interposer/launch_record.h"
#include "interposer/process.h"
#include "interposer/process_state.h"
#include "interposer/stuck_launches.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::duration kInterval = std::chrono::milliseconds(50);
constexpr Clock::duration kPatience = std::chrono::milliseconds(300);
// Launches of a program that never waits are told by this thread.
constexpr Clock::duration kSummaryInterval = std::chrono::milliseconds(500);
// Looking may take this share of the thread's time at most.
constexpr int kLeastIdleFactor = 50;

struct Watch {
  std::mutex mutex;  // held while the thread looks
  std::atomic<bool> stopped{false};
  std::atomic<uint32_t> started{0};  // fork generation + 1 of the process that has the thread
};
// Never destroyed: the thread runs until the process is gone.
Watch& TheWatch() {
  static auto* watch = new Watch;
  return *watch;
}

void* Run(void*) {
  pthread_setname_np(pthread_self(), "ops-debug");
  Watch& watch = TheWatch();
  Clock::duration interval = kInterval;
  Clock::time_point told{};
  while (!watch.stopped) {
    std::this_thread::sleep_for(interval);
    if (!EnterHandlerQuietly()) continue;  // brackets what a fork must not tear
    const Clock::time_point start = Clock::now();
    try {
      std::lock_guard lock(watch.mutex);
      if (!watch.stopped) ReportStandingFaults(start, kPatience);
      if (!watch.stopped) LookForStuckLaunches();
      if (!watch.stopped && start - told >= kSummaryInterval) {
        SendLaunchSummaries();
        told = start;
      }
    } catch (...) {
    }
    LeaveHandler();
    interval = std::max(kInterval, (Clock::now() - start) * kLeastIdleFactor);
  }
  return nullptr;
}

}  // namespace

void StartFaultWatch() noexcept {
  Watch& watch = TheWatch();
  const uint32_t mine = ForkGeneration() + 1;
  if (watch.stopped || watch.started.exchange(mine) == mine) return;
  // The program's signals are for the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    pthread_create(&thread, &attributes, &Run, nullptr);  // without it faults are told at drains
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void StopFaultWatch() noexcept {
  Watch& watch = TheWatch();
  watch.stopped = true;
  std::lock_guard lock(watch.mutex);
}

FaultWatchPause::FaultWatchPause() { TheWatch().mutex.lock(); }
FaultWatchPause::~FaultWatchPause() { TheWatch().mutex.unlock(); }

}  // namespace ops_debug::interposer
