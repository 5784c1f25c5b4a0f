// Child processes, each the leader of a process group: a replay is ended as a whole (replays.h).
#include "analysis/replays.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace ops_debug::analysis {
namespace {

// The program goes first.
constexpr int kNiceness = 10;
constexpr size_t kMostAtOnce = 4;
// Between asking a replay to end, which lets it tell what it found, and ending it.
constexpr std::chrono::seconds kGrace{2};
constexpr int kAllOfThem = 3;  // time limits of one replay for all that is left at the end

size_t MostAtOnce() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostAtOnce);
}

std::string Seconds(std::chrono::seconds time) { return std::to_string(time.count()) + " s"; }

// The last line that is not empty: where programs say why they end.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  constexpr size_t kLongest = 300;
  return last.substr(0, kLongest);
}

std::string EndingText(int status, const std::string& last_line) {
  // The launcher of the replay passes on how the replayer ended: 128 + signal.
  constexpr int kSignalled = 128;
  const int code = WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
  const char* name = code > kSignalled ? sigabbrev_np(code - kSignalled) : nullptr;
  const std::string text = name != nullptr
                               ? "its process was killed by SIG" + std::string(name)
                               : "its process ended with exit code " + std::to_string(code);
  return last_line.empty() ? text : text + ": " + last_line;
}

// What the program's own launch did, if it hung.
std::string StuckText(const proto::LaunchStuck& stuck) {
  if (!stuck.has_launch()) return "";
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  return "; in the program it had not ended after " +
         std::to_string(stuck.running_ns() / kSecond_ns) +
         " s, but something else could still have written that memory";
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void BecomeReplay(char* const* arguments, const char* output, pid_t parent) {
  setpgid(0, 0);
  // The launcher of the replay passes the signal on, and all of the replay ends.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  // The analyzer ignores what would end it; a replay must not.
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGPIPE, SIGXFSZ, SIGUSR1}) {
    signal(number, SIG_DFL);
  }
  if (nice(kNiceness) == -1) errno = 0;
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int file = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (null < 0 || file < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(file, STDOUT_FILENO) < 0 ||
      dup2(file, STDERR_FILENO) < 0) {
    _exit(127);
  }
  // Pipes of the analyzer's must close when it does. (Without the call, the usual range.)
  if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
    constexpr int kUsualLimit = 1024;
    for (int fd = STDERR_FILENO + 1; fd < kUsualLimit; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  // Leaves the addresses that drivers hand out free, as far as the system lets choose.
  constexpr unsigned long kAsk = 0xffffffff;
  personality(static_cast<unsigned long>(personality(kAsk)) | ADDR_COMPAT_LAYOUT);
  execv(arguments[0], arguments);
  const char* why = strerror(errno);
  const ssize_t written = write(STDERR_FILENO, why, strlen(why));
  _exit(written > 0 ? 127 : 126);
}

}  // namespace

Replays::~Replays() {
  for (auto& [key, replay] : replays_) {
    if (replay.state != State::kRuns) continue;
    kill(-replay.child, SIGKILL);
    while (waitpid(replay.child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Replays::See(const proto::Event& event) {
  const uint32_t process_id = event.process_id();
  if (event.has_launch_captured() && !options_.folder.empty()) {
    const proto::LaunchCaptured& captured = event.launch_captured();
    const Key key{process_id, captured.capture_id()};
    const auto [found, is_new] = replays_.try_emplace(key);
    if (!is_new && found->second.state != State::kEnded) return;  // sent twice
    found->second = {.process_id = process_id, .captured = captured};
    waiting_.push_back(key);
    return;
  }
  if (event.has_call_failed() && event.call_failed().error() == "CUDA_ERROR_LAUNCH_TIMEOUT") {
    timed_out_.insert(process_id);
  }
  if (!event.has_launch_stuck()) return;
  const auto found = replays_.find({process_id, event.launch_stuck().capture_id()});
  if (found == replays_.end()) return;
  found->second.stuck = event.launch_stuck();
  if (found->second.deadlock) NoteHang(found->second);
}

std::string Replays::FileOf(const Replay& replay, const char* ending) const {
  // The name came from another process.
  const std::filesystem::path name = std::filesystem::path(replay.captured.file()).filename();
  return (std::filesystem::path(options_.folder) / name).string() + ending;
}

bool Replays::Start(Replay& replay, std::string* error) const {
  const std::string capture = FileOf(replay, "");
  if (access(capture.c_str(), R_OK) != 0) {
    *error = "its capture cannot be read: " + std::string(strerror(errno));
    return false;
  }
  std::vector<std::string> words = {options_.launcher, "run", "--device", "emulator"};
  const std::string model = ReadCaptureModel(capture);
  if (!model.empty()) words.insert(words.end(), {"--emulate", model});
  words.insert(words.end(),
               {"--check", options_.checks, "--replay", "off", "--error-exitcode", "0", "--tensors",
                "off", "--ptx-store", "none", "--format", "json", "--output", "/dev/null", "--log",
                FileOf(replay, ".odlog"), "--", options_.replayer, capture});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string output = FileOf(replay, ".text");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    *error = "no process could be started for it: " + std::string(strerror(errno));
    return false;
  }
  if (child == 0) BecomeReplay(arguments.data(), output.c_str(), parent);
  setpgid(child, child);  // the child does so, too: whoever comes first
  replay.child = child;
  replay.start = Clock::now();
  replay.deadline = replay.start + options_.time_limit;
  return true;
}

void Replays::Look() {
  const Clock::time_point now = Clock::now();
  if (now >= all_deadline_) {
    while (!waiting_.empty()) {
      const Key key = waiting_.front();
      waiting_.pop_front();
      End(replays_[key], false, TimeIsUp());
    }
  }
  for (auto& [key, replay] : replays_) {
    if (replay.state != State::kRuns) continue;
    int status = 0;
    if (waitpid(replay.child, &status, WNOHANG) == replay.child) {
      Reap(replay, status);
    } else {
      EndChildren(replay, now);
    }
  }
  for (auto& [key, replay] : replays_) {
    if (replay.state == State::kUndecided) Decide(replay);
  }
  while (!waiting_.empty() && running_ < MostAtOnce()) {
    Replay& replay = replays_[waiting_.front()];
    waiting_.pop_front();
    std::string error;
    if (Start(replay, &error)) {
      replay.state = State::kRuns;
      ++running_;
    } else {
      End(replay, false, error);
    }
  }
}

// Ends a replay whose time is up.
void Replays::EndChildren(Replay& replay, Clock::time_point now) {
  if (replay.asked_to_end) {
    if (now >= replay.deadline) kill(-replay.child, SIGKILL);
    return;
  }
  if (now < std::min(replay.deadline, all_deadline_)) return;
  replay.given_up = now < replay.deadline ? TimeIsUp()
                                          : "it took longer than " + Seconds(options_.time_limit) +
                                                " (--replay-time)";
  replay.asked_to_end = true;
  replay.deadline = now + kGrace;
  kill(replay.child, SIGTERM);
}

std::string Replays::TimeIsUp() const {
  return Seconds(kAllOfThem * options_.time_limit) +
         " after the end of the program were not enough for all replays (--replay-time)";
}

void Replays::Reap(Replay& replay, int status) {
  --running_;
  if (WIFSIGNALED(status)) kill(-replay.child, SIGKILL);  // what its launcher could not end
  replay.duration_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - replay.start).count());
  const std::string what_happened = replay.given_up.empty()
                                        ? EndingText(status, LastLine(FileOf(replay, ".text")))
                                        : replay.given_up;
  replay.result = ReadReplay(FileOf(replay, ""), FileOf(replay, ".odlog"), replay.process_id,
                             replay.captured, what_happened);
  for (const proto::Event& event : replay.result.events) sink_(event);
  replay.state = State::kUndecided;  // Look() decides
}

// The driver ends a context when a launch takes too long. It does not say which: of those that spin
// in their replays, it must have been the last.
Replays::Later Replays::LaterOf(const Replay& replay) const {
  const auto launch_of = [](const Replay& one) {
    const auto& launches = one.captured.launches();
    return launches.empty() ? uint64_t{0} : launches.rbegin()->launch().launch_id();
  };
  Later later = Later::kNone;
  if (!timed_out_.contains(replay.process_id)) return later;
  for (auto entry = replays_.lower_bound({replay.process_id, 0});
       entry != replays_.end() && entry->first.first == replay.process_id; ++entry) {
    const Replay& other = entry->second;
    if (launch_of(other) <= launch_of(replay)) continue;
    if (other.state == State::kRuns || other.state == State::kWaits) return Later::kMaySpin;
    if (other.state == State::kUndecided || other.deadlock) later = Later::kSpins;
  }
  return later;
}

void Replays::Decide(Replay& replay) {
  const auto is_deadlock = [](const proto::Event& event) {
    return event.has_sync_fault() && event.sync_fault().kind() == proto::SyncFault::KIND_DEADLOCK;
  };
  const ReplayResult& result = replay.result;
  switch (result.ending) {
    case ReplayEnding::kComplete:
      End(replay, true, "");
      return;
    case ReplayEnding::kDeadlock:
      replay.deadlock = std::any_of(result.events.begin(), result.events.end(), is_deadlock);
      End(replay, true, "");
      return;
    case ReplayEnding::kSpins: {
      const Later later = LaterOf(replay);
      if (later == Later::kMaySpin) return;
      const bool timed_out = timed_out_.contains(replay.process_id) && later == Later::kNone;
      if (replay.stuck.alone() || timed_out) {
        for (const proto::Event& event : result.deadlocks) sink_(event);
        replay.deadlock = !result.deadlocks.empty();
        End(replay, true, "");
      } else if (replay.process_ended) {
        End(replay, false, result.reason + StuckText(replay.stuck));
      }
      return;
    }
    case ReplayEnding::kFailed:
      End(replay, false, result.reason);
      return;
  }
}

void Replays::End(Replay& replay, bool complete, const std::string& reason) {
  replay.state = State::kEnded;
  proto::Event event;
  event.set_process_id(replay.process_id);
  proto::ReplayEnded& ended = *event.mutable_replay_ended();
  ended.set_capture_id(replay.captured.capture_id());
  ended.set_complete(complete);
  ended.set_reason(reason);
  ended.set_duration_ns(replay.duration_ns);
  ended.set_deadlock(replay.deadlock);
  sink_(event);
  for (const char* ending : {"", ".odlog", ".result", ".text"}) {
    unlink(FileOf(replay, ending).c_str());
  }
  replay.result = {};
  if (replay.deadlock) NoteHang(replay);
}

void Replays::NoteHang(const Replay& replay) {
  if (!replay.stuck.has_launch() || replay.process_ended) return;
  if (std::find(hanging_.begin(), hanging_.end(), replay.process_id) != hanging_.end()) return;
  hanging_.push_back(replay.process_id);
  hangs_.push_back({replay.process_id, replay.stuck.launch(), replay.stuck.running_ns()});
}

bool Replays::Owes(uint32_t process_id) const {
  for (auto entry = replays_.lower_bound({process_id, 0});
       entry != replays_.end() && entry->first.first == process_id; ++entry) {
    if (entry->second.state != State::kEnded) return true;
  }
  return false;
}

bool Replays::OwesAny() const { return LaunchesOwed() > 0; }

uint64_t Replays::LaunchesOwed() const {
  uint64_t launches = 0;
  for (const auto& [key, replay] : replays_) {
    if (replay.state == State::kEnded) continue;
    launches += static_cast<uint64_t>(std::max(replay.captured.launches_size(), 1));
  }
  return launches;
}

void Replays::EndOfProcess(uint32_t process_id) {
  for (auto entry = replays_.lower_bound({process_id, 0});
       entry != replays_.end() && entry->first.first == process_id; ++entry) {
    entry->second.process_ended = true;
  }
}

void Replays::EndOfPrograms() {
  all_deadline_ = Clock::now() + kAllOfThem * options_.time_limit;
  for (auto& [key, replay] : replays_) replay.process_ended = true;
}

void Replays::Abandon(const std::string& reason) {
  waiting_.clear();
  for (auto& [key, replay] : replays_) {
    if (replay.state == State::kWaits) End(replay, false, reason);
    if (replay.state != State::kRuns) continue;
    replay.given_up = reason;
    replay.asked_to_end = true;
    kill(-replay.child, SIGKILL);
    int status = 0;
    while (waitpid(replay.child, &status, 0) < 0 && errno == EINTR) {
    }
    replay.process_ended = true;
    Reap(replay, status);
  }
  for (auto& [key, replay] : replays_) {
    replay.process_ended = true;
    if (replay.state == State::kUndecided) Decide(replay);
  }
}

std::vector<ProvedHang> Replays::TakeHangs() { return std::exchange(hangs_, {}); }

}  // namespace ops_debug::analysis
