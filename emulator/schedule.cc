// From a seed to a way of scheduling. See schedule.h.
#include "emulator/schedule.h"

#include <iterator>

namespace ops_debug::emulator {

uint64_t SeedOfLaunch(uint64_t seed, uint64_t launch) {
  if (seed == 0) return 0;
  return Random(seed ^ launch * 0xd134'2543'de82'ef95ull).Next() | 1;
}

Schedule::Schedule(uint64_t seed) : random(seed) {
  random = Random(random.Next());
  by_priority = random.Chance(128);
  constexpr uint32_t kSlices[] = {1, 2, 4, 8, 16, 64, 256, 2048};
  mean_slice = kSlices[random.Below(std::size(kSlices))];
  constexpr uint32_t kDemotions[] = {2, 8, 32, 128};
  mean_demotion = kDemotions[random.Below(std::size(kDemotions))];
  constexpr uint32_t kSplits[] = {0, 0, 4, 32};
  split_chance = kSplits[random.Below(std::size(kSplits))];
  constexpr uint64_t kResident[] = {2, 4, 8, 16, 64};
  resident_blocks = kResident[random.Below(std::size(kResident))];
  in_order = random.Chance(64);
  constexpr uint32_t kChances[] = {0, 16, 64, 128, 192};
  weakness.late_stores = kChances[random.Below(std::size(kChances))];
  weakness.old_values = kChances[random.Below(std::size(kChances))];
  constexpr uint32_t kArrivals[] = {4, 32, 128};
  weakness.arrivals = kArrivals[random.Below(std::size(kArrivals))];
}

}  // namespace ops_debug::emulator
