// From races that the checks reported to findings. An author has one bug per pair of source lines,
// so races are merged by process, kind and the unordered pair of their lines; columns, directions
// and unrolled copies do not matter. Counts add up, and the earliest launch speaks.
//
// One bug can show as several pairs, of which only the one that names the cause is kept:
//  - what is a race for one pair of threads may be benign, or not decidable, for another: the race
//    is reported;
//  - lanes of one warp race where warps do: the barrier of the block orders both;
//  - all pairs of accesses of an unprotected read-modify-write belong to that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class RaceDetector {
 public:
  explicit RaceDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::Race& race);

  // In the order in which they first happened. To be called once.
  struct Findings {
    std::vector<Finding> proven, unproven;
  };
  Findings Finish();

 private:
  struct Merged {
    proto::Race first;
    uint64_t count = 0;
    bool lower_bound = false;
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
