// An event behind each captured launch says when it has ended.
//
// Whether a launch that spins on global memory is stuck for good depends on who could still write
// that memory: other work of the device, or a thread of the process. Only if there is none of both,
// the launch is said to be alone: all threads but the driver's own and ours wait in the driver, and
// no other stream has work.
#include "interposer/stuck_launches.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "interposer/files.h"
#include "interposer/launch_capture.h"
#include "interposer/process.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

// A launch that has run for so long is told of.
constexpr Clock::duration kStuckAfter = std::chrono::seconds(5);
constexpr Clock::duration kInterval = std::chrono::milliseconds(500);
// What changes about a stuck launch is told, too, but not forever.
constexpr int kMostEvents = 8;

struct Watched {
  WatchedLaunch launch;
  CUevent event = nullptr;
  Clock::time_point begin;
  int events_sent = 0;
  bool alone = false;      // as told last
  bool was_alone = false;  // when it was looked at last
};

// Never destroyed: hooks run until the very end of the process.
struct Launches {
  std::mutex mutex;
  std::vector<Watched> watched;
  Clock::time_point looked;
};
Launches& TheLaunches() {
  static auto* launches = new Launches;
  return *launches;
}

struct Blocked {
  std::mutex mutex;
  std::map<pid_t, int> threads;  // calls, one inside the other
};
Blocked& TheBlocked() {
  static auto* blocked = new Blocked;
  return *blocked;
}

[[maybe_unused]] const bool registered = [] {
  AtForkInChild([]() noexcept {
    TheLaunches().watched.clear();
    TheBlocked().threads.clear();
  });
  return true;
}();

// The driver's own threads ("cuda-EvtHandlr", "cuda00001400006") and ours act on behalf of others.
bool ServesOthers(std::string_view name) {
  return name.starts_with("cuda") || name.starts_with("ops-debug");
}

// Files of /proc have no size.
std::string ThreadName(std::string_view thread) {
  char name[32];
  const std::string path = "/proc/self/task/" + std::string(thread) + "/comm";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t bytes = read(file, name, sizeof name);
  close(file);
  return bytes > 0 ? std::string(name, static_cast<size_t>(bytes)) : "";
}

bool EveryThreadWaits() {
  bool all = true;
  ForEachFile("/proc/self/task", [&](const char* entry) {
    const std::string_view text = entry;
    pid_t thread = 0;
    std::from_chars(text.data(), text.data() + text.size(), thread);
    {
      Blocked& blocked = TheBlocked();
      std::lock_guard lock(blocked.mutex);
      if (blocked.threads.contains(thread)) return;
    }
    all = all && ServesOthers(ThreadName(text));
  });
  return all;
}

// Every stream but the launch's own has nothing to do.
bool OtherStreamsRest(const Watched& watched) {
  for (const KnownStreamHandle& other : StreamsWithWork()) {
    const bool own = other.stream == watched.launch.stream;
    if (other.stream == CU_STREAM_PER_THREAD) {
      // Another thread's own default stream cannot be asked about from here.
      if (!own || !other.is_only_one) return false;
      continue;
    }
    if (!own && OPS_DEBUG_REAL(cuStreamQuery)(other.stream) != CUDA_SUCCESS) return false;
  }
  return true;
}

bool IsAlone(const Watched& watched) {
  return ChecksStreamOrder() && !watched.launch.host_memory && !AnyCapture() &&
         EveryThreadWaits() && OtherStreamsRest(watched);
}

void Forget(Watched& watched) {
  if (watched.event) OPS_DEBUG_REAL(cuEventDestroy_v2)(watched.event);
  watched.event = nullptr;
}

// False: nothing more is to be learned.
bool Look(Watched& watched, Clock::time_point now) {
  if (watched.launch.context->lost) return false;
  InternalCalls calls(*watched.launch.context);
  if (!calls.ok()) return false;
  if (OPS_DEBUG_REAL(cuEventQuery)(watched.event) != CUDA_ERROR_NOT_READY) {
    Forget(watched);
    return false;
  }
  if (now - watched.begin < kStuckAfter) return true;
  // A thread may just be between two calls: what was so a while ago, too, is believed.
  const bool alone_now = IsAlone(watched);
  const bool alone = alone_now && watched.was_alone;
  watched.was_alone = alone_now;
  if (watched.events_sent != 0 && alone == watched.alone) return true;
  if (watched.events_sent == kMostEvents) return true;
  watched.events_sent++;
  watched.alone = alone;
  Send(LaunchStuckEvent{
      .launch = watched.launch.launch,
      .capture_id = watched.launch.capture_id,
      .running_ns = static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(now - watched.begin).count()),
      .alone = alone});
  return true;
}

}  // namespace

void WatchLaunch(WatchedLaunch launch) {
  Watched watched;
  watched.begin = Clock::now();
  {
    InternalCalls calls(*launch.context);
    if (!calls.ok() ||
        OPS_DEBUG_REAL(cuEventCreate)(&watched.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      return;
    }
    if (OPS_DEBUG_REAL(cuEventRecord)(watched.event, launch.stream) != CUDA_SUCCESS) {
      Forget(watched);
      return;
    }
  }
  watched.launch = std::move(launch);
  Launches& launches = TheLaunches();
  std::lock_guard lock(launches.mutex);
  launches.watched.push_back(std::move(watched));
}

void LookForStuckLaunches() {
  Launches& launches = TheLaunches();
  std::vector<Watched> looked_at;
  const Clock::time_point now = Clock::now();
  {
    std::lock_guard lock(launches.mutex);
    if (launches.watched.empty() || now - launches.looked < kInterval) return;
    launches.looked = now;
    // The driver is asked without the lock: a launch must not wait for an answer.
    looked_at.swap(launches.watched);
  }
  std::erase_if(looked_at, [&](Watched& watched) { return !Look(watched, now); });
  std::lock_guard lock(launches.mutex);
  launches.watched.insert(launches.watched.end(), std::make_move_iterator(looked_at.begin()),
                          std::make_move_iterator(looked_at.end()));
}

BlockingCall BlockingCall::Begin() {
  BlockingCall call;
  if (!CapturesLaunches()) return call;
  Blocked& blocked = TheBlocked();
  std::lock_guard lock(blocked.mutex);
  blocked.threads[gettid()]++;
  call.active_ = true;
  return call;
}

BlockingCall& BlockingCall::operator=(BlockingCall&& other) noexcept {
  End();
  active_ = other.active_;
  other.active_ = false;
  return *this;
}

void BlockingCall::End() {
  if (!active_) return;
  active_ = false;
  Blocked& blocked = TheBlocked();
  std::lock_guard lock(blocked.mutex);
  const auto found = blocked.threads.find(gettid());
  if (found != blocked.threads.end() && --found->second == 0) blocked.threads.erase(found);
}

}  // namespace ops_debug::interposer
