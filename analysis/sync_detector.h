// From faults of barriers, deadlocks and needless synchronisation to findings.
//
// Faults are merged by process, kind, kernel and source line; the earliest launch speaks. A barrier
// that threads skip by returning works on today's GPUs, which count them as arrived, but is
// undefined by CUDA: a warning, unless the return splits a warp. Synchronisation that orders
// nothing is a note: it costs time and breaks nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/merged_count.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class SyncDetector {
 public:
  explicit SyncDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::SyncFault& fault);
  void Add(uint32_t process_id, const proto::RedundantSync& sync);

  // Faults in the order in which they first happened.
  std::vector<Finding> FinishFaults();
  // Needless synchronisation, the longest wait first.
  std::vector<Finding> FinishRedundant();

 private:
  struct MergedFault {
    proto::SyncFault first;
    MergedCount count;
    size_t order = 0;
  };
  struct MergedSync {
    proto::RedundantSync first;
    uint64_t count = 0;
    uint64_t duration_ns = 0;
    size_t order = 0;
  };
  using Key = std::pair<uint32_t, std::string>;  // process; the rest, serialized

  WaitingGroup MakeGroup(const proto::Waiters& waiters, const proto::SyncFault& fault);
  Finding MakeFinding(uint32_t process_id, const MergedFault& merged);
  Finding MakeFinding(uint32_t process_id, const MergedSync& merged);

  HostSymbolizer& symbolizer_;
  std::map<Key, MergedFault> faults_;
  std::map<Key, MergedSync> syncs_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
