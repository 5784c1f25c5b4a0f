// From races that the checks reported to findings. An author has one bug per pair of source lines,
// so races are merged by process, kind and the unordered pair of their lines; columns, directions
// and unrolled copies do not matter. Counts add up, and the earliest launch speaks.
//
// One bug can show as several pairs, of which only the one that names the cause is kept:
//  - what is a race for one pair of threads may be benign, or not decidable, for another: the race
//    is reported;
//  - lanes of one warp race where warps do: the barrier of the block orders both;
//  - all pairs of accesses of an unprotected read-modify-write belong to that.
//
// What the replay of a launch on the CPU device reports (engine "replay") is the launch that the
// device saw: the device speaks and counts where it saw the pair, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/merged_count.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class RaceDetector {
 public:
  explicit RaceDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::Race& race);

  // In the order in which they first happened. To be called once. `is_decided` tells whether an
  // unproven race was looked into elsewhere (replay_book.h): it is left out then.
  struct Findings {
    std::vector<Finding> proven, unproven;
    uint64_t decided = 0;  // unproven pairs of lines that were left out
  };
  using IsDecided = std::function<bool(uint32_t process_id, const proto::Race& race)>;
  Findings Finish(const IsDecided& is_decided = nullptr);

 private:
  struct Merged {
    proto::Race first;
    MergedCount count;
    size_t order = 0;
  };
  using Key = std::pair<uint32_t, std::string>;  // process; the rest, serialized

  AccessInfo MakeAccess(const proto::Access& access);
  Finding MakeFinding(uint32_t process_id, const Merged& merged);

  HostSymbolizer& symbolizer_;
  std::map<Key, Merged> races_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
