// Runs captured launches once more on the CPU device, beside the program: at low priority, a few at
// a time, each within a time limit. A replay is a run of ops-debug of its own (`ops-debug run
// --device emulator ... -- ops-debug-replayer CAPTURE`); its log comes back as events of the
// program.
//
// A deadlock is proved here while the launch still hangs on the GPU. Where threads wait at barriers
// the replay alone proves it. Where they wait for a value in global memory somebody else might
// write it (the host, a copy, another launch), so the replay counts only if the launch hangs in the
// program, too, and nobody else can.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/replay_results.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

struct ReplayOptions {
  std::string folder;    // of the captures; what a replay leaves is removed. Empty: no replays
  std::string launcher;  // paths of ops-debug and ops-debug-replayer
  std::string replayer;
  std::string checks;                   // of the replays: "race,sync"
  std::chrono::seconds time_limit{20};  // of one; of all that is left at the end, three times that
};

// A launch of the program that can never end.
struct ProvedHang {
  uint32_t process_id = 0;
  proto::Launch launch;
  uint64_t running_ns = 0;  // when it was seen last
};

class Replays {
 public:
  using Clock = std::chrono::steady_clock;
  // Takes events of the program: findings, then ReplayEnded.
  using Sink = std::function<void(const proto::Event&)>;

  Replays(ReplayOptions options, Sink sink)
      : options_(std::move(options)), sink_(std::move(sink)) {}
  ~Replays();  // ends what still runs
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  // Every event of the program, in order.
  void See(const proto::Event& event);
  // Starts, ends and reads replays; never waits. To be called all the time.
  void Look();

  // Whether something is still to come that concerns this process, or any.
  bool Owes(uint32_t process_id) const;
  bool OwesAny() const;
  uint64_t LaunchesOwed() const;

  // Nothing more happens in this process. What depends on it is decided.
  void EndOfProcess(uint32_t process_id);
  // All programs have ended: from now on the time of all replays together is limited.
  void EndOfPrograms();
  // Nothing more is replayed.
  void Abandon(const std::string& reason);

  // Launches that hang in the program and whose deadlock is proved, each process once.
  std::vector<ProvedHang> TakeHangs();

 private:
  enum class State : uint8_t { kWaits, kRuns, kUndecided, kEnded };
  struct Replay {
    uint32_t process_id = 0;
    proto::LaunchCaptured captured;
    State state = State::kWaits;
    pid_t child = -1;
    Clock::time_point start, deadline;
    bool asked_to_end = false;  // SIGTERM was sent, SIGKILL is next
    std::string given_up;       // why it was ended
    uint64_t duration_ns = 0;
    ReplayResult result;    // from State::kUndecided on
    bool deadlock = false;  // proved
    // Of the launch in the program.
    proto::LaunchStuck stuck;  // without a launch until it is
    bool process_ended = false;
  };
  using Key = std::pair<uint32_t, uint64_t>;  // process id, capture

  std::string FileOf(const Replay& replay, const char* ending) const;
  bool Start(Replay& replay, std::string* error) const;
  void Reap(Replay& replay, int status);
  // Launches of the same process that came later than this one.
  enum class Later : uint8_t { kNone, kMaySpin, kSpins };
  Later LaterOf(const Replay& replay) const;
  void Decide(Replay& replay);
  void End(Replay& replay, bool complete, const std::string& reason);
  void EndChildren(Replay& replay, Clock::time_point now);
  std::string TimeIsUp() const;
  void NoteHang(const Replay& replay);

  ReplayOptions options_;
  Sink sink_;
  std::map<Key, Replay> replays_;
  std::deque<Key> waiting_;
  std::set<uint32_t> timed_out_;  // processes in which the driver ended a launch that took too long
  size_t running_ = 0;
  Clock::time_point all_deadline_ = Clock::time_point::max();
  std::vector<ProvedHang> hangs_;
  std::vector<uint32_t> hanging_;  // processes that were told of
};

}  // namespace ops_debug::analysis
