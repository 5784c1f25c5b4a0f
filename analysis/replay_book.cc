// Which captures hold the launches of a pair (replay_book.h).
#include "analysis/replay_book.h"

#include <algorithm>
#include <set>

#include "analysis/demangle.h"

namespace ops_debug::analysis {
namespace {

// A launch of a graph has one number for all its kernels.
bool IsSame(const proto::Launch& a, const proto::Launch& b) {
  return a.launch_id() == b.launch_id() && !a.kernel().empty() && a.kernel() == b.kernel();
}

// Kernels of one name can stand in several modules, with different code. 0: not known.
bool IsSameModule(uint64_t a, uint64_t b) { return a == b || a == 0 || b == 0; }

// Both launches of the pair, in their order.
bool Covers(const proto::LaunchCaptured& captured, const proto::Race& race) {
  const proto::Launch& first = race.first().launch();
  const proto::Launch& second = race.second().launch();
  const bool one_launch = first.launch_id() == second.launch_id();
  bool seen_first = false;
  for (const proto::CapturedLaunch& launch : captured.launches()) {
    const bool is_second =
        IsSame(launch.launch(), second) && IsSameModule(launch.module_id(), race.module_id());
    if (is_second && (one_launch || seen_first)) return true;
    seen_first |= IsSame(launch.launch(), first);
  }
  return false;
}

}  // namespace

void ReplayBook::Add(uint32_t process, const proto::LaunchCaptured& captured) {
  captures_[{process, captured.capture_id()}].captured = captured;
}

void ReplayBook::Add(uint32_t process, const proto::LaunchNotCaptured& not_captured) {
  not_captured_.push_back({process, not_captured.launch(), not_captured.reason()});
}

void ReplayBook::Add(uint32_t process, const proto::ReplayEnded& ended) {
  const auto found = captures_.find({process, ended.capture_id()});
  if (found == captures_.end()) return;
  found->second.ended = true;
  found->second.end = ended;
}

bool ReplayBook::Decides(uint32_t process, const proto::Race& race) const {
  if (!race.unproven() || race.engine() == "replay") return false;
  // An operation of the host on either side is not part of any capture.
  if (!race.first().operation().empty() || !race.second().operation().empty()) return false;
  for (auto entry = captures_.lower_bound({process, 0});
       entry != captures_.end() && entry->first.first == process; ++entry) {
    const Capture& capture = entry->second;
    if (capture.ended && capture.end.complete() && Covers(capture.captured, race)) return true;
  }
  return false;
}

ReplaySummary ReplayBook::Finish() const {
  ReplaySummary summary;
  std::set<std::string> replayed;                    // kernels
  std::set<std::pair<uint32_t, uint64_t>> launches;  // by process and number
  struct Group {
    std::set<std::string> kernels, undecided;
    size_t order = 0;
  };
  std::map<std::string, Group> groups;
  const auto leave_open = [&groups](const std::string& reason,
                                    const proto::CapturedLaunch& launch) {
    const auto [found, is_new] = groups.try_emplace(reason);
    if (is_new) found->second.order = groups.size();
    found->second.kernels.insert(Demangle(launch.launch().kernel()));
    found->second.undecided.insert(launch.undecided().begin(), launch.undecided().end());
  };
  for (const Open& open : not_captured_) leave_open(open.reason, open.launch);
  for (const auto& [key, capture] : captures_) {
    summary.duration_ns += capture.end.duration_ns();
    if (capture.ended && capture.end.complete()) {
      // One launch can be part of several captures: as itself, and in front of its successor.
      for (const proto::CapturedLaunch& launch : capture.captured.launches()) {
        launches.insert({key.first, launch.launch().launch_id()});
        replayed.insert(launch.launch().kernel());
      }
      continue;
    }
    const std::string reason =
        capture.ended ? capture.end.reason() : "the recording ended before its replay";
    for (const proto::CapturedLaunch& launch : capture.captured.launches()) {
      // A predecessor was captured for the sake of the launch behind it; its own capture came
      // before.
      const bool is_last = &launch == &*capture.captured.launches().rbegin();
      const bool is_open = launch.undecided_size() > 0 &&
                           !launches.contains({key.first, launch.launch().launch_id()});
      if (is_last || is_open) leave_open(reason, launch);
    }
  }
  summary.launches = launches.size();
  summary.kernels = replayed.size();
  std::vector<std::pair<size_t, UnreplayedGroup>> ordered;
  for (const auto& [reason, group] : groups) {
    ordered.push_back({group.order,
                       {reason,
                        {group.kernels.begin(), group.kernels.end()},
                        {group.undecided.begin(), group.undecided.end()}}});
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [order, group] : ordered) summary.not_replayed.push_back(std::move(group));
  return summary;
}

}  // namespace ops_debug::analysis
