// Merging, and the words (sync_detector.h).
#include "analysis/sync_detector.h"

#include <algorithm>
#include <cstdio>

#include "analysis/finding_parts.h"

namespace ops_debug::analysis {
namespace {

constexpr uint64_t kWarpSize = 32;

struct KindWords {
  const char* kind;
  const char* cause;
  const char* message;  // if the reporter gave no sentence
  const char* advice;
};

KindWords WordsOf(proto::SyncFault::Kind kind) {
  switch (kind) {
    case proto::SyncFault::KIND_EXITED_THREADS:
      return {
          "barrier-divergence", "exited-threads",
          "threads returned before a barrier that others of their block wait at",
          "let every thread of the block reach the barrier: move it out of the branch, or keep "
          "the threads in the kernel with a flag (bool active = i < n) and put the work, not the "
          "barrier, under the condition"};
    case proto::SyncFault::KIND_BARRIER_COUNT:
      return {"barrier-divergence", "barrier-count",
              "the threads that meet at this barrier do not agree on its number or count",
              "give every bar.sync and bar.arrive of one barrier the same count, a multiple of the "
              "warp size, and let exactly so many threads use it"};
    case proto::SyncFault::KIND_UNINITIALISED_MBARRIER:
      return {"barrier-divergence", "uninitialised-mbarrier",
              "an mbarrier is used that nobody has initialised",
              "let one thread initialise it (mbarrier.init, cuda::barrier's init) and the block "
              "meet at __syncthreads() before anybody uses it"};
    case proto::SyncFault::KIND_INVALID_MBARRIER:
      return {"barrier-divergence", "invalid-mbarrier",
              "an mbarrier is used that is none any more, or more often than its count allows",
              "count the arrivals of a phase (threads and copies) and compare with the count it "
              "was initialised with; use no memory of a live mbarrier for anything else"};
    case proto::SyncFault::KIND_WARP_MASK:
      return {"barrier-divergence", "warp-mask",
              "the mask of a warp-synchronous instruction names lanes that do not execute it",
              "name exactly the lanes that get there: __ballot_sync() of the condition before the "
              "branch, or __activemask() only where the warp cannot have split"};
    case proto::SyncFault::KIND_DEADLOCK:
      return {"deadlock", "", "the launch cannot end: all threads that are left wait for others",
              "let every thread that another one waits for get there: a barrier inside of a "
              "branch, a flag that nobody sets, or blocks that wait for blocks which cannot start "
              "before they end (a cooperative launch makes sure that all run at once)"};
    default:
      return {"barrier-divergence", "divergent-barrier",
              "threads of one block do not reach the same barrier",
              "move the barrier out of the branch, so that all threads of the block reach the same "
              "one; keep the work inside"};
  }
}

std::string GroupText(const WaitingGroup& group) {
  std::string what = group.what;
  if (group.threads == 1 && what.starts_with("wait ")) what.replace(0, 5, "waits ");
  std::string text =
      std::to_string(group.threads) + (group.threads == 1 ? " thread " : " threads ");
  if (group.blocks > 1) text += "of " + std::to_string(group.blocks) + " blocks ";
  const std::string place = ShortPlace(group.frames, group.ptx_line);
  // "returned, splitting a warp": the place belongs to the verb.
  const size_t verb = std::min(what.find(','), what.size());
  text += what.substr(0, verb) + (place.empty() ? "" : " at " + place) + what.substr(verb);
  return text + " (the first: block " + ToText(group.first_block) + " thread " +
         ToText(group.first_thread) + ')';
}

uint64_t Linear(const Extent3& at, const Extent3& of) {
  return at.x + uint64_t{of.x} * (at.y + uint64_t{of.y} * at.z);
}

// Whether some lanes of a warp have left while others wait. The reporter says so; if it does not,
// a group that left counts as whole warps, or as the block's last threads.
bool SplitsWarp(const Finding& finding) {
  for (const WaitingGroup& group : finding.waiters) {
    if (!group.what.starts_with("returned")) continue;
    if (group.what.find("splitting a warp") != std::string::npos) return true;
    const uint64_t blocks = std::max<uint64_t>(group.blocks, 1);
    if (!finding.launch || group.threads % blocks != 0) continue;
    const Extent3& block = finding.launch->block;
    const uint64_t all = uint64_t{block.x} * block.y * block.z;
    const uint64_t first = Linear(group.first_thread, block);
    const uint64_t threads = group.threads / blocks;
    const bool tail = first + threads == all;
    if ((tail ? first : threads) % kWarpSize != 0) return true;
  }
  return false;
}

std::string DurationText(uint64_t duration_ns) {
  char text[40];
  const auto ns = static_cast<double>(duration_ns);
  constexpr double kMicrosecond = 1e3, kMillisecond = 1e6;
  if (ns >= kMillisecond) {
    std::snprintf(text, sizeof(text), "%.1f ms", ns / kMillisecond);
  } else {
    std::snprintf(text, sizeof(text), "%.1f us", ns / kMicrosecond);
  }
  return text;
}

std::string RawKey(const proto::RedundantSync& sync) {
  std::string key = sync.api() + '\0' + sync.reason() + '\0';
  for (const proto::StackFrame& frame : sync.stack().frames()) {
    key += frame.module() + '+' + std::to_string(frame.offset()) + '\0';
  }
  for (const proto::PythonFrame& frame : sync.python_stack()) {
    key += frame.file() + ':' + std::to_string(frame.line()) + '\0';
  }
  return key;
}

}  // namespace

void SyncDetector::Add(uint32_t process_id, const proto::SyncFault& fault) {
  const std::string key =
      std::to_string(fault.kind()) + '\0' +
      PlaceKey(ToCodePlace(fault.site(), fault.launch().kernel()), fault.site());
  const auto [found, is_new] = faults_.try_emplace({process_id, key});
  MergedFault& merged = found->second;
  if (is_new) merged.order = order_++;
  const auto when = [](const proto::SyncFault& one) {
    return std::pair(one.launch().launch_id(), IsReplay(one.engine()));
  };
  if (is_new || when(fault) < when(merged.first)) merged.first = fault;
  // Barriers count threads, not unknown numbers of accesses: at least one is one.
  merged.count.Add(fault.engine(), std::max<uint64_t>(fault.count(), 1));
}

void SyncDetector::Add(uint32_t process_id, const proto::RedundantSync& sync) {
  const auto [found, is_new] = syncs_.try_emplace({process_id, RawKey(sync)});
  MergedSync& merged = found->second;
  if (is_new) {
    merged.order = order_++;
    merged.first = sync;
  }
  merged.count += std::max<uint64_t>(sync.count(), 1);
  merged.duration_ns += sync.duration_ns();
}

std::vector<Finding> SyncDetector::FinishFaults() {
  std::vector<std::pair<size_t, Finding>> ordered;
  for (const auto& [key, merged] : faults_) {
    ordered.emplace_back(merged.order, MakeFinding(key.first, merged));
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Finding> findings;
  for (auto& [order, finding] : ordered) findings.push_back(std::move(finding));
  return findings;
}

std::vector<Finding> SyncDetector::FinishRedundant() {
  std::vector<std::pair<size_t, Finding>> ordered;
  for (const auto& [key, merged] : syncs_) {
    ordered.emplace_back(merged.order, MakeFinding(key.first, merged));
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    if (a.second.wait_duration_ns != b.second.wait_duration_ns) {
      return a.second.wait_duration_ns > b.second.wait_duration_ns;
    }
    return a.first < b.first;
  });
  std::vector<Finding> findings;
  for (auto& [order, finding] : ordered) findings.push_back(std::move(finding));
  return findings;
}

WaitingGroup SyncDetector::MakeGroup(const proto::Waiters& waiters, const proto::SyncFault& fault) {
  WaitingGroup group;
  group.what = waiters.what().empty() ? "wait" : waiters.what();
  group.threads = waiters.threads();
  group.blocks = waiters.blocks();
  group.first_block = ToExtent(waiters.first_block());
  group.first_thread = ToExtent(waiters.first_thread());
  group.frames = ToCodePlace(waiters.site(), fault.launch().kernel()).frames;
  group.instruction = waiters.site().instruction();
  group.ptx_line = waiters.site().ptx_line();
  group.text = GroupText(group);
  return group;
}

Finding SyncDetector::MakeFinding(uint32_t process_id, const MergedFault& merged) {
  const proto::SyncFault& fault = merged.first;
  const KindWords words = WordsOf(fault.kind());
  Finding finding;
  finding.kind = words.kind;
  finding.cause = words.cause;
  finding.process_id = process_id;
  SetPlace(ToCodePlace(fault.site(), fault.launch().kernel()), fault.site(), finding);
  finding.engine = fault.engine().empty() ? "ptx" : fault.engine();
  finding.count = merged.count.Total();
  if (fault.has_block()) finding.block = ToExtent(fault.block());
  if (fault.has_thread()) finding.thread = ToExtent(fault.thread());
  const bool mbarrier = fault.kind() == proto::SyncFault::KIND_UNINITIALISED_MBARRIER ||
                        fault.kind() == proto::SyncFault::KIND_INVALID_MBARRIER;
  if (mbarrier) finding.address = fault.address();
  if (IsKnown(fault.launch())) finding.launch = ToLaunch(fault.launch(), symbolizer_);
  for (const proto::Waiters& waiters : fault.waiters()) {
    finding.waiters.push_back(MakeGroup(waiters, fault));
  }
  finding.message = words.message;
  if (!fault.text().empty()) {
    finding.message = fault.text();
  } else {
    for (const WaitingGroup& group : finding.waiters) {
      finding.message += (&group == finding.waiters.data() ? ": " : "; ") + group.text;
    }
  }
  finding.advice = words.advice;
  if (fault.kind() == proto::SyncFault::KIND_EXITED_THREADS) {
    if (SplitsWarp(finding)) {
      finding.advice += "; here the return splits a warp, whose lanes a barrier counts together";
    } else {
      finding.severity = Severity::kWarning;
      finding.advice +=
          "; today's GPUs count threads that returned as arrived, but CUDA leaves it undefined";
    }
  }
  for (const WaitingGroup& group : finding.waiters) {
    if (group.frames.empty()) continue;
    finding.related.push_back({group.frames.front().file, group.frames.front().line, group.text});
  }
  AddLaunchToRelated(finding);
  return finding;
}

Finding SyncDetector::MakeFinding(uint32_t process_id, const MergedSync& merged) {
  const proto::RedundantSync& sync = merged.first;
  Finding finding;
  finding.kind = "redundant-sync";
  finding.severity = Severity::kNote;
  finding.process_id = process_id;
  finding.count = merged.count;
  finding.wait_duration_ns = merged.duration_ns;
  finding.call = CallInfo{sync.api(), "", symbolizer_.Resolve(sync.stack()),
                          ToPythonStack(sync.python_stack())};
  finding.message = sync.api() + " orders nothing that was not in order before";
  if (!sync.reason().empty()) finding.message += ": " + sync.reason();
  finding.advice = "remove it";
  if (merged.duration_ns > 0) {
    finding.advice += "; the host waited " + DurationText(merged.duration_ns) + " in " +
                      std::to_string(merged.count) + (merged.count == 1 ? " call" : " calls");
  }
  AddRelated(finding.call->stack, finding.call->python_stack, "the call was made here",
             finding.related);
  return finding;
}

}  // namespace ops_debug::analysis
