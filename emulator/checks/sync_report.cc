// The other half of SyncCheck: mbarriers, deadlocks, and how faults become reports.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "emulator/checks/sync_check.h"
#include "emulator/checks/sync_fault_kind.h"
#include "emulator/mbarrier.h"
#include "emulator/mbarrier_place.h"

namespace ops_debug::emulator {
namespace {

uint64_t CountOf(uint32_t lanes) { return static_cast<uint64_t>(__builtin_popcount(lanes)); }
uint32_t FirstOf(uint32_t lanes) { return static_cast<uint32_t>(__builtin_ctz(lanes)); }

uint64_t WordOf(MbarrierPlace place) {
  uint64_t word = 0;
  std::memcpy(&word, place.word(), sizeof(word));
  return word;
}

}  // namespace

// ---- places and groups

bool SyncCheck::IsTool(const Place& place) const {
  return place.statement < place.function->statements.size() &&
         place.function->statements[place.statement].is_tool;
}

SyncCheck::Place SyncCheck::PlaceOf(const Split& split) {
  Place place;
  place.function = split.frame->function;
  // Lanes that exit by `exit` stand behind it.
  uint32_t pc = split.pc;
  const auto& code = place.function->code;
  if (pc > 0 && (pc >= code.size() || code[pc].op != Op::kReturn) && code[pc - 1].op == Op::kExit)
    --pc;
  place.statement = pc < code.size() ? code[pc].statement : 0;
  place.kernel_pc = pc;
  for (const Frame* frame = split.frame; frame->parent != nullptr; frame = frame->parent)
    place.kernel_pc = frame->return_pc - 1;
  return place;
}

SyncCheck::Place SyncCheck::PlaceOf(const Warp& warp, uint32_t lanes) {
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    if ((warp.splits[i].lanes & lanes) != 0) return PlaceOf(warp.splits[i]);
  }
  return {};
}

void SyncCheck::AddTo(Groups& groups, const Warp& warp, uint32_t lanes, const Place& place,
                      const std::string& what) {
  if (lanes == 0) return;
  Group* group = nullptr;
  for (Group& known : groups) {
    if (known.place.function == place.function && known.place.statement == place.statement &&
        known.what == what)
      group = &known;
  }
  const Block& block = *warp.block;
  if (group == nullptr) {
    group = &groups.emplace_back();
    group->place = place;
    group->what = what;
    for (int d = 0; d < 3; ++d) {
      group->first_block[d] = block.index[d];
      group->first_thread[d] = warp.thread_index[d][FirstOf(lanes)];
    }
  }
  group->threads += CountOf(lanes);
  if (group->last_block != &block) ++group->blocks;
  group->last_block = &block;
}

void SyncCheck::AddExited(Groups& groups, const Warp& warp, uint32_t lanes, bool splits_warp) {
  const WarpState& state = StateOf(*warp.block).warps[warp.index];
  const std::string what = splits_warp ? "returned, splitting a warp" : "returned";
  for (uint32_t m = lanes; m != 0; m &= m - 1)
    AddTo(groups, warp, m & -m, state.exits[FirstOf(m)], what);
}

void SyncCheck::AddElsewhere(Groups& groups, const Warp& warp, uint32_t lanes) const {
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    AddTo(groups, warp, split.lanes & lanes, PlaceOf(split), "are elsewhere");
  }
}

void SyncCheck::AddArrived(Groups& groups, const Block& block, const Arrivals& arrivals,
                           const std::string& what) const {
  for (const auto& warp : block.warps)
    AddTo(groups, *warp, arrivals.lanes[warp->index], arrivals.place, what);
}

void SyncCheck::Report(uint32_t kind, const Place& place, const Warp& warp, uint32_t lane,
                       const Groups& groups, std::string text, uint64_t address) {
  for (Found& known : found_) {
    if (known.kind != kind || known.place.function != place.function ||
        known.place.statement != place.statement)
      continue;
    ++known.report.count;
    return;
  }
  Found& found = found_.emplace_back();
  found.kind = kind;
  found.place = place;
  SyncFaultReport& report = found.report;
  report.kind = kind;
  report.place = ReportOfThread(launch_, *operation_, warp, lane);
  const auto site = [&](const Place& at) {
    return at.function == nullptr
               ? kNoSite
               : checks_.sites().Of(*launch_.program, *at.function, at.statement);
  };
  report.place.site = site(place);
  report.place.address = address;
  report.text = std::move(text);
  for (const Group& group : groups) {
    WaitersReport& waiters = report.waiters.emplace_back();
    waiters.site = site(group.place);
    waiters.threads = group.threads;
    waiters.blocks = group.blocks;
    std::copy(std::begin(group.first_block), std::end(group.first_block), waiters.first_block);
    std::copy(std::begin(group.first_thread), std::end(group.first_thread), waiters.first_thread);
    waiters.what = group.what;
  }
  std::stable_sort(
      report.waiters.begin(), report.waiters.end(),
      [](const WaitersReport& a, const WaitersReport& b) { return a.threads > b.threads; });
}

void SyncCheck::EndLaunch() {
  ReportDeadlock();
  for (Found& found : found_) checks_.Add(std::move(found.report));
  found_.clear();
}

// ---- mbarriers

void SyncCheck::BeforeMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, MbarrierUse use,
                               const char* instruction) {
  auto& known = StateOf(*place.block).mbarriers;
  const auto found = known.find(place.offset);
  if (found == known.end() || !found->second.is_live) return;
  MbarrierState& state = found->second;
  const bool changed = WordOf(place) != state.word;
  const bool initialises = use == MbarrierUse::kInitialise;
  // Other contents: the memory serves for something else meanwhile, and may be initialised anew.
  if (changed == initialises || state.is_reported) return;
  state.is_reported = true;
  Report(kInvalidMbarrier, PlaceOf(warp, 1u << lane), warp, lane, {},
         std::string(instruction) + " on " + NameMbarrier(warp, place) +
             (changed ? ", whose bytes were overwritten since mbarrier.init"
                      : ", which is in use: it was initialised before and not ended by "
                        "mbarrier.inval"),
         place.offset);
}

void SyncCheck::AfterMbarrier(MbarrierPlace place, MbarrierUse use) {
  MbarrierState& state = StateOf(*place.block).mbarriers[place.offset];
  if (use == MbarrierUse::kInitialise) state.is_reported = false;
  state.is_live = use != MbarrierUse::kInvalidate;
  state.word = WordOf(place);
}

void SyncCheck::FailedMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place,
                               const char* instruction, const std::string& problem) {
  const auto& known = StateOf(*place.block).mbarriers;
  const auto found = known.find(place.offset);
  const std::string name = std::string(instruction) + " on " + NameMbarrier(warp, place);
  const Place at = PlaceOf(warp, 1u << lane);
  if (Mbarrier(place.word()).valid() || problem.starts_with("with a count")) {
    Report(kInvalidMbarrier, at, warp, lane, {}, name + ", " + problem, place.offset);
  } else if (found == known.end()) {
    Report(kUninitialisedMbarrier, at, warp, lane, {},
           name + ", which no mbarrier.init has initialised", place.offset);
  } else if (!found->second.is_reported) {
    Report(kInvalidMbarrier, at, warp, lane, {},
           name + (found->second.is_live ? ", whose bytes were overwritten since mbarrier.init"
                                         : ", which mbarrier.inval has ended"),
           place.offset);
  }
}

// ---- deadlocks

void SyncCheck::CollectWaits(const std::vector<WaitGroup>& waits,
                             const std::vector<Block*>& blocks) {
  deadlock_.clear();
  for (const WaitGroup& wait : waits) {
    Group& group = deadlock_.emplace_back();
    group.place = {wait.function, wait.statement, 0};
    const bool spins = wait.state == Split::State::kReady;
    group.what = (spins ? "spin " : "wait ") + wait.reason;
    group.threads = wait.threads;
    group.blocks = wait.blocks;
    std::copy(std::begin(wait.first_block), std::end(wait.first_block), group.first_block);
    std::copy(std::begin(wait.first_thread), std::end(wait.first_thread), group.first_thread);
  }
  std::stable_sort(deadlock_.begin(), deadlock_.end(),
                   [](const Group& a, const Group& b) { return a.threads > b.threads; });
  Groups exited;
  for (const Block* block : blocks) {
    if (blocks_.count(block) == 0) continue;
    for (const auto& warp : block->warps)
      AddExited(exited, *warp, warp->exited & warp->exists, false);
  }
  deadlock_.insert(deadlock_.end(), exited.begin(), exited.end());
}

void SyncCheck::ReportDeadlock() {
  if (deadlock_.empty()) return;
  const uint64_t unstarted =
      launch_.schedule_seed != 0
          ? launch_.unstarted
          : launch_.cluster_count - std::min(launch_.next_cluster.load(), launch_.cluster_count);
  if (const uint64_t unstarted_blocks = unstarted * launch_.cluster_blocks) {
    Group& group = deadlock_.emplace_back();
    group.blocks = unstarted_blocks;
    group.threads = unstarted_blocks * launch_.threads_per_block;
    group.what = "never started: the device holds " + std::to_string(launch_.resident_limit) +
                 " blocks of this kernel at a time";
    if (!launch_.cooperative) group.what += ", and this is no cooperative launch";
  }
  Found& found = found_.emplace_back();
  found.kind = kDeadlock;
  SyncFaultReport& report = found.report;
  report.kind = kDeadlock;
  const Group& first = deadlock_.front();
  report.place.kernel = launch_.program->functions[launch_.kernel->function]->name;
  report.place.operation = operation_->id;
  report.place.token = operation_->token;
  std::copy(std::begin(first.first_block), std::end(first.first_block), report.place.block);
  std::copy(std::begin(first.first_thread), std::end(first.first_thread), report.place.thread);
  for (const Group& group : deadlock_) {
    WaitersReport& waiters = report.waiters.emplace_back();
    if (group.place.function != nullptr) {
      waiters.site =
          checks_.sites().Of(*launch_.program, *group.place.function, group.place.statement);
    }
    waiters.threads = group.threads;
    waiters.blocks = group.blocks;
    std::copy(std::begin(group.first_block), std::end(group.first_block), waiters.first_block);
    std::copy(std::begin(group.first_thread), std::end(group.first_thread), waiters.first_thread);
    waiters.what = group.what;
  }
  report.place.site = report.waiters.front().site;
  deadlock_.clear();
}

}  // namespace ops_debug::emulator
