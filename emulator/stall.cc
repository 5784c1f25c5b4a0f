// Deadlocks: nobody can run, or everybody who can goes round in circles.
//
// Threads that sleep (barriers, waits for an mbarrier) are plainly visible. A loop that waits for
// memory to change is recognised by proof, not by a time limit: if a warp comes back to exactly the
// state in which it was before (program counters, registers, own local memory) and memory has not
// changed in between, it will do the same for ever unless somebody else changes memory. Cycles of
// any length are found by comparing with a saved state that is renewed after 1, 2, 4, 8, ...
// samples (Brent, An improved Monte Carlo factorization algorithm, 1980). A launch in which every
// resident warp sleeps or is in such a cycle, and in which no further block can start, is
// deadlocked, apart from what the host or another launch may still do to memory; that is given time
// (Patience).
//
// Only memory counts that somebody has read while observed (read_set.h): the counters of a checking
// tool, say, change for ever without waking anybody up.
//
// Comparing needs to know when memory changes, which costs speed. So warps are observed only after
// all blocks of a host thread have done nothing but spin for a while.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "emulator/checks/sync_check.h"
#include "emulator/deadlock_text.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Other streams may run copies and kernels that write what a kernel spins on.
constexpr milliseconds kOtherWorkPatience{3000};
constexpr milliseconds kHostPatience{15000};
// For loops that read a clock: their state never repeats, and they may give up by themselves.
constexpr milliseconds kClockPatience{60000};
constexpr milliseconds kLongestSuspicion{1600};
// About the time limit of hardware. A program may count how often it tried.
constexpr milliseconds kSuspicionAfterGivingUp{1};
constexpr useconds_t kPauseUs = 500;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9fb2'1c65'1e98'df25ull;
  return hash ^ (hash >> 32);
}

uint64_t StateOf(const Warp& warp) {
  uint64_t hash = Mix(warp.local_changes, warp.exited);
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    // The order of splits in the array is not part of the state.
    uint64_t one = Mix(uint64_t{split.lanes} << 32 | split.pc, static_cast<uint64_t>(split.state));
    for (const Frame* frame = split.frame; frame != nullptr; frame = frame->parent) {
      one = Mix(one, reinterpret_cast<uintptr_t>(frame->function) ^ frame->return_pc);
      const std::byte* const data = frame->registers.data();
      for (size_t at = 0; at + sizeof(uint64_t) <= frame->registers.size_bytes();
           at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, data + at, sizeof(word));
        one = Mix(one, word);
      }
    }
    hash += one;
  }
  return hash;
}

}  // namespace

// Whether the warp has been in this state before.
void Machine::Sample(Warp& warp) {
  StallWatch& watch = warp.watch;
  const uint64_t changes = launch_.changes.load();
  const uint64_t hash = StateOf(warp);
  bool all_ran = true;  // since the state was saved
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    all_ran = all_ran && (split.state != Split::State::kReady || split.last_run > watch.clock);
  }
  watch.latest_hash = hash;
  if (watch.changes == changes && watch.hash == hash && all_ran) {
    watch.stuck_at = changes + 1;
    watch.samples = 0;
    return;
  }
  const bool is_new = watch.changes != changes;
  if (!is_new && ++watch.samples < watch.limit) return;
  watch.stuck_at = 0;
  watch.hash = hash;
  watch.changes = changes;
  watch.clock = clock_;
  watch.limit = is_new ? 1 : 2 * watch.limit;
  watch.samples = 0;
}

// One turn of each of the block's warps.
Machine::Stop Machine::ObserveBlock(Block& block) {
  bool any_left = false;
  bool any_ready = false;
  bool sleeping = false;
  for (auto& warp : block.warps) {
    if (warp->split_count == 0) continue;
    any_left = true;
    sleeping = Wake(*warp) || sleeping;
    if (!HasReady(*warp)) continue;
    any_ready = true;
    const uint32_t gone = warp->gone();
    const uint64_t before = warp->watch.latest_hash;
    slice_ = INT64_MAX;
    const Stop stop = RunWarp(*warp);
    if (stop == Stop::kFault) return stop;
    if (warp->split_count != 0) Sample(*warp);
    // A warp that has come to a barrier, say; not one that went back to sleep as it was.
    if (gone != warp->gone() || (stop != Stop::kYield && warp->watch.latest_hash != before))
      launch_.changes.fetch_add(1);
  }
  if (!any_ready && PerformCopies(block)) {
    launch_.changes.fetch_add(1);
    any_ready = true;
  }
  if (!any_left) return Stop::kFinished;
  if (!any_ready && !sleeping) {
    FailDeadlock(block);
    return Stop::kFault;
  }
  spinning_ = true;
  return Stop::kYield;
}

bool Machine::IsStuck(const std::vector<Block*>& resident) const {
  const uint64_t stuck_at = launch_.changes.load() + 1;
  for (const Block* block : resident) {
    for (const auto& warp : block->warps) {
      if (warp->split_count != 0 && HasReady(*warp) && warp->watch.stuck_at != stuck_at)
        return false;
    }
  }
  return true;
}

bool Machine::GiveUpWaiting(const std::vector<Block*>& resident) {
  if (gave_up_at_ == launch_.changes.load()) return false;
  gave_up_at_ = launch_.changes.load();
  bool any = false;
  for (Block* block : resident) {
    for (auto& warp : block->warps) {
      for (uint32_t i = 0; i < warp->split_count; ++i) {
        Split& split = warp->splits[i];
        if (split.state != Split::State::kWaiting) continue;
        const Instruction& in = split.frame->function->code[split.pc];
        if (!in.fn.extended->GivesUp()) continue;
        split.timed_out = true;
        split.state = Split::State::kReady;
        any = true;
      }
    }
  }
  // Should they come back to wait again, that is soon clear.
  if (any) suspicion_ = kSuspicionAfterGivingUp;
  return any;
}

milliseconds Machine::Patience(const std::vector<Block*>& resident) const {
  milliseconds longest{0};
  if (!launch_.host_accessible || launch_.is_alone) return longest;
  for (const Block* block : resident) {
    for (const auto& warp : block->warps) {
      if (!HasReady(*warp) || warp->spin.pointer == nullptr || warp->spin.is_shared) continue;
      const auto address = reinterpret_cast<uint64_t>(warp->spin.pointer);
      const bool by_host = launch_.host_accessible(address);
      // In a chosen schedule nothing runs beside the kernel but the host.
      const milliseconds others = schedule_ == nullptr ? kOtherWorkPatience : milliseconds(0);
      longest = std::max(longest, by_host ? kHostPatience : others);
    }
  }
  return longest;
}

bool Machine::LookForDeadlock(const std::vector<Block*>& resident) {
  const steady_clock::time_point now = steady_clock::now();
  if (!observing_) {
    if (now - last_event_ < suspicion_) return false;
    observing_ = true;
    {
      const std::lock_guard lock(launch_.mutex);
      launch_.reads.Prepare();
    }
    reads_clock_ = false;
    return false;
  }
  bool stuck = IsStuck(resident);
  if (stuck && GiveUpWaiting(resident)) return false;
  // A loop that reads a clock never repeats its state.
  if (!stuck && reads_clock_ && now - last_event_ > kClockPatience) stuck = true;
  const uint64_t changes = launch_.changes.load();
  const std::lock_guard lock(launch_.mutex);
  if (!stuck) {
    launch_.stuck.erase(this);
    return false;
  }
  launch_.stuck[this] = changes;
  bool all = launch_.stuck.size() == launch_.machines;
  for (const auto& [machine, at] : launch_.stuck) all = all && at == changes;
  if (!all || launch_.all_stuck_at != changes) {
    launch_.all_stuck_at = all ? changes : ~0ull;
    launch_.all_stuck_since = now;
    usleep(kPauseUs);
    return false;
  }
  if (now - launch_.all_stuck_since < Patience(resident)) {
    usleep(kPauseUs);
    return false;
  }
  return true;
}

void Machine::DeclareDeadlock(const std::vector<Block*>& resident) {
  for (const Block* block : resident) {
    for (const auto& warp : block->warps) {
      if (!HasReady(*warp) || warp->spin.pointer == nullptr || warp->spin.is_shared) continue;
      launch_.spins_globally.store(true);
      const auto address = reinterpret_cast<uint64_t>(warp->spin.pointer);
      if (launch_.is_alone && launch_.host_accessible && launch_.host_accessible(address))
        launch_.waits_for_host.store(true);
    }
  }
  launch_.is_deadlocked.store(true);
}

// Something has happened. Whoever spins often but gets on is observed less and less.
void Machine::StopObserving() {
  last_event_ = steady_clock::now();
  if (!observing_) return;
  observing_ = false;
  suspicion_ = std::min(2 * suspicion_, kLongestSuspicion);
  const std::lock_guard lock(launch_.mutex);
  launch_.stuck.erase(this);
}

void Machine::CollectWaits(const std::vector<Block*>& resident) {
  const std::lock_guard lock(launch_.mutex);
  launch_.deadlocked_blocks += resident.size();
  for (const Block* block : resident) AddWaits(*this, *block, launch_.waits);
  TellDeadlock(launch_.waits, resident);
}

void Machine::TellDeadlock(const std::vector<WaitGroup>& waits, const std::vector<Block*>& blocks) {
  if (launch_.checks == nullptr || launch_.checks->sync() == nullptr) return;
  if (launch_.waits_for_host) return;
  const std::lock_guard lock(launch_.checks->mutex());
  launch_.checks->sync()->CollectWaits(waits, blocks);
}

void Machine::FailDeadlock(Block& block) {
  if (launch_.checks != nullptr) launch_.checks->Deadlock({&block});
  std::vector<WaitGroup> waits;
  AddWaits(*this, block, waits);
  TellDeadlock(waits, {&block});
  fault_.code = LaunchError::Code::kDeadlock;
  fault_.has_place = false;
  fault_.text = "no thread of the block can go on: " + DescribeWaits(launch_, waits);
}

}  // namespace ops_debug::emulator
