// From the faults that the target's kernels reported to findings. A developer has one bug per
// source place, so faults are merged by process, kernel, device function, kind and source place:
// unrolled copies of one line are one finding. Without line info the PTX instruction is the place.
// Counts add up; the first offender (earliest launch, then lowest thread) speaks for all.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class MemoryDetector {
 public:
  explicit MemoryDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::Fault& fault);
  void Add(uint32_t process_id, const proto::InvalidLaunch& invalid);

  // In the order in which they first happened.
  std::vector<Finding> Finish();

 private:
  struct Merged {
    proto::Fault first;
    uint64_t count = 0;
    bool lower_bound = false;
    std::set<std::pair<uint64_t, std::string>> instructions;  // PTX line or SASS offset, and text
    size_t order = 0;
  };
  struct MergedLaunch {
    proto::InvalidLaunch first;
    uint64_t count = 0;
    size_t order = 0;
  };
  using Key = std::tuple<uint32_t, std::string>;  // process; the rest, serialized

  Finding MakeFinding(uint32_t process_id, const Merged& merged);
  Finding MakeFinding(uint32_t process_id, const MergedLaunch& merged);

  HostSymbolizer& symbolizer_;
  std::map<Key, Merged> faults_;
  std::map<Key, MergedLaunch> launches_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
