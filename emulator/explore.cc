// Chosen schedules: one host thread takes turns between all resident warps as the seed says
// (schedule.h), and memory is as weak as the model allows (weak_memory.h).
//
// When nothing has happened for a while the schedule calms down: pending stores become visible,
// every warp gets its turn, loads see the latest values. What does not go on then is a deadlock
// (stall.cc). Everything is counted in steps, not in time, so a seed always gives the same run.
#include <unistd.h>

#include <algorithm>

#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

using std::chrono::steady_clock;

// Backward jumps of a loop that waits for memory, before its warp gives way.
constexpr int64_t kSpinCredit = 8 * 4096;
constexpr int64_t kLimitedCredit = 1 << 10;  // in launches with an instruction limit
// Scheduling points without any change of memory, after which the schedule calms down.
constexpr uint64_t kQuietPoints = 4096;
constexpr uint64_t kQuietSlicesPerWarp = 8;
// Clusters among which the next one is chosen.
constexpr size_t kCandidates = 64;
// Rounds of clock loops; the clocks run ever faster meanwhile.
constexpr uint64_t kClockRounds = 5000;
// Rounds of warps that compute without touching what others read.
constexpr uint64_t kCalmRounds = 32;
constexpr uint64_t kLongestClockStepNs = 1'000'000'000;
constexpr useconds_t kPauseUs = 500;

// Code for GPUs whose warps run in lock step: its shuffles and votes name no lanes.
bool UsesLockStep(const Program::Impl& program) {
  for (const auto& function : program.functions) {
    for (const auto& operation : function->warp_operations) {
      if (operation->members == kNoRef) return true;
    }
  }
  return false;
}

}  // namespace

// The order in which clusters start. Any of those may be next that could be resident although all
// before it are as well: a program may rely on blocks starting in order, as they do in hardware.
class ClusterOrder {
 public:
  ClusterOrder(const Launch& launch, Schedule& schedule)
      : schedule_(schedule), count_(launch.cluster_count) {
    if (launch.resident_limit != 0)
      capacity_ = std::max<uint64_t>(1, launch.resident_limit / launch.cluster_blocks);
  }

  // False if none is left, or the device is full.
  bool Take(const std::vector<Block*>& resident, uint64_t* number) {
    while (candidates_.size() < kCandidates && next_ < count_) candidates_.push_back(next_++);
    if (candidates_.empty()) return false;
    uint64_t lowest = candidates_[0];
    for (const Block* block : resident) lowest = std::min(lowest, block->cluster->number);
    size_t choices = 0;
    while (choices < candidates_.size() && candidates_[choices] - lowest < capacity_) ++choices;
    if (choices == 0) return false;
    const size_t choice = schedule_.in_order ? 0 : schedule_.random.Below(choices);
    *number = candidates_[choice];
    candidates_.erase(candidates_.begin() + static_cast<ptrdiff_t>(choice));
    return true;
  }
  uint64_t unstarted() const { return count_ - next_ + candidates_.size(); }

 private:
  Schedule& schedule_;
  const uint64_t count_;
  uint64_t capacity_ = ~0ull;
  uint64_t next_ = 0;
  std::vector<uint64_t> candidates_;  // the lowest that have not started
};

bool Machine::StartChosen(ClusterOrder& order, Residents& residents) {
  uint64_t number = 0;
  if (!order.Take(residents.blocks, &number)) return false;
  for (Block* const block : StartCluster(number)->blocks) {
    residents.blocks.push_back(block);
    weak_->StartBlock(*block);
    for (auto& warp : block->warps) {
      warp->priority = schedule_->random.Next() >> 1 | 1ull << 63;
      residents.warps.push_back(warp.get());
    }
  }
  launch_.changes.fetch_add(1);
  return true;
}

// Forgets warps and blocks that have ended.
void Machine::Sweep(Residents& residents) {
  std::erase_if(residents.warps, [](const Warp* warp) { return warp->split_count == 0; });
  std::erase_if(residents.blocks, [this](Block* block) {
    for (const auto& warp : block->warps) {
      if (warp->split_count != 0) return false;
    }
    EndBlock(*block);
    return true;
  });
  launch_.changes.fetch_add(1);
}

Warp* Machine::ChooseWarp(const std::vector<Warp*>& warps) {
  const auto runnable = [this](Warp* warp) {
    Wake(*warp);
    return HasReady(*warp);
  };
  if (!schedule_->by_priority) {
    const size_t first = schedule_->random.Below(warps.size());
    for (size_t i = 0; i < warps.size(); ++i) {
      Warp* const warp = warps[(first + i) % warps.size()];
      if (runnable(warp)) return warp;
    }
    return nullptr;
  }
  Warp* best = nullptr;
  for (Warp* const warp : warps) {
    if ((best == nullptr || warp->priority > best->priority) && runnable(warp)) best = warp;
  }
  return best;
}

Machine::Stop Machine::RunSlice(Warp& warp) {
  slice_ = schedule_->NextSlice();
  for (;;) {
    if (warp.split_count == 0) return Stop::kFinished;
    if (warp.split_count > 1) MergeSplits(warp);
    int pick = PickByPlace(warp);
    if (pick < 0) return Stop::kBlocked;
    if (warp.split_count > 1 && schedule_->random.Chance(64)) {
      const size_t first = schedule_->random.Below(warp.split_count);
      for (size_t i = 0; i < warp.split_count; ++i) {
        const size_t at = (first + i) % warp.split_count;
        if (warp.splits[at].state != Split::State::kReady) continue;
        pick = static_cast<int>(at);
        break;
      }
    }
    Split& split = warp.splits[pick];
    credit_ = kSpinCredit;
    if (launch_.instruction_limit != 0) credit_ = std::min(credit_, kLimitedCredit);
    const uint64_t before = warp.instructions;
    const Stop stop = CountTowardsLimit(warp, before, Execute<true>(warp, split));
    if (stop == Stop::kFault) {
      fault_.warp = warp.index;
      return stop;
    }
    if (stop == Stop::kYield || stop == Stop::kPreempted) {
      split.last_run = ++clock_;
      return stop;
    }
    if (slice_ <= 0) return Stop::kPreempted;
  }
}

uint32_t Machine::ChooseLanes(uint32_t lanes) {
  const auto some = static_cast<uint32_t>(schedule_->random.Next()) & lanes;
  return some == 0 ? lanes : some;
}

// Until something happens. kYield: it has; kBlocked: it never will.
Machine::Stop Machine::CalmDown(ClusterOrder& order, Residents& residents) {
  if (weak_->Settle()) return Stop::kYield;
  weak_->SetCalm(true);
  const bool lanes_may_part = std::exchange(lanes_may_part_, false);
  reads_clock_ = false;
  const steady_clock::time_point begin = steady_clock::now();
  Stop result = Stop::kReschedule;
  for (uint64_t round = 0; result == Stop::kReschedule; ++round) {
    const uint64_t before = launch_.changes.load();
    for (Block* const block : residents.blocks) {
      const Stop stop = ObserveBlock(*block);
      if (stop == Stop::kFault) {
        Report(*block);
        return stop;
      }
    }
    if (launch_.changes.load() != before) {
      result = Stop::kYield;
    } else if (IsStuck(residents.blocks)) {
      if (GiveUpWaiting(residents.blocks)) continue;
      if (StartChosen(order, residents)) {
        result = Stop::kYield;
      } else if (steady_clock::now() - begin < Patience(residents.blocks)) {
        usleep(kPauseUs);
      } else {
        result = Stop::kBlocked;
      }
    } else if (reads_clock_) {
      clock_step_ns_ = std::min(2 * clock_step_ns_, kLongestClockStepNs);
      // What it waits for may be the work of a block that has not started.
      if (round > kClockRounds / 16 && StartChosen(order, residents)) {
        result = Stop::kYield;
      } else if (round > kClockRounds) {
        result = Stop::kBlocked;
      }
    } else if (round > kCalmRounds) {
      StartChosen(order, residents);
      result = Stop::kYield;
    }
  }
  weak_->SetCalm(false);
  lanes_may_part_ = lanes_may_part;
  return result;
}

void Machine::Explore() {
  schedule_ = std::make_unique<Schedule>(launch_.schedule_seed);
  weak_ = std::make_unique<WeakMemory>(schedule_->weakness, Random(schedule_->random.Next()),
                                       launch_.reads, launch_.changes);
  launch_.reads.Prepare();
  observing_ = true;
  lanes_may_part_ = !UsesLockStep(*launch_.program);
  ClusterOrder order(launch_, *schedule_);
  Residents residents;
  uint64_t patience = kQuietPoints, changes = 0, quiet_points = 0, quiet_slices = 0,
           lowest_priority = 1ull << 63;
  for (Stop stop = Stop::kYield; stop != Stop::kFault;) {
    while (residents.blocks.size() < schedule_->resident_blocks && StartChosen(order, residents)) {
    }
    if (residents.warps.empty()) break;
    Warp* const warp = ChooseWarp(residents.warps);
    if (warp != nullptr) {
      const uint64_t gone = warp->gone();
      stop = RunSlice(*warp);
      if (stop == Stop::kFault) {
        Report(*warp->block);
        break;
      }
      weak_->Step();
      if (gone != warp->gone()) launch_.changes.fetch_add(1);
      if (warp->split_count == 0) Sweep(residents);
      if (stop == Stop::kYield || schedule_->random.Below(schedule_->mean_demotion) == 0)
        warp->priority = --lowest_priority;
      ++quiet_slices;
      quiet_points += schedule_->mean_slice;
      if (changes != launch_.changes.load()) quiet_slices = quiet_points = 0;
      if (changes != launch_.changes.load()) patience = kQuietPoints;
      changes = launch_.changes.load();
      if (quiet_points < patience || quiet_slices < kQuietSlicesPerWarp * residents.warps.size())
        continue;
    }
    quiet_slices = quiet_points = 0;
    patience *= 2;
    stop = CalmDown(order, residents);
    if (stop == Stop::kFault) break;
    if (stop == Stop::kBlocked) {
      DeclareDeadlock(residents.blocks);
      if (launch_.checks != nullptr && !launch_.waits_for_host)
        launch_.checks->Deadlock(residents.blocks);
      CollectWaits(residents.blocks);
      launch_.unstarted = order.unstarted();
      break;
    }
    Sweep(residents);
  }
  for (Block* const block : residents.blocks) EndBlock(*block);
  weak_->Settle();
  launch_.instructions.fetch_add(instructions_);
}

}  // namespace ops_debug::emulator
