// Findings of the host side: driver calls that failed, and memory that was never freed. Both are
// warnings: a program may try a call to learn whether it works, and may leave its memory to the
// driver at its end.
//
// One bug has one place, so leaks are merged by the stack that allocated them, biggest sum first;
// failed calls are merged by call, error and stack.
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

class HostDetector {
 public:
  explicit HostDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::CallFailed& failed);
  void Add(uint32_t process_id, const proto::Leak& leak);

  // Failed calls in the order in which they first happened, then leaks.
  std::vector<Finding> Finish();

 private:
  struct MergedCall {
    proto::CallFailed first;
    uint64_t count = 0;
    size_t order = 0;
  };
  struct MergedLeak {
    proto::Allocation biggest;
    uint64_t count = 0;
    uint64_t bytes = 0;
    size_t order = 0;
  };
  using Key = std::pair<uint32_t, std::string>;  // process; the rest, serialized

  Finding MakeFinding(uint32_t process_id, const MergedCall& merged);
  Finding MakeFinding(uint32_t process_id, const MergedLeak& merged);

  HostSymbolizer& symbolizer_;
  std::map<Key, MergedCall> calls_;
  std::map<Key, MergedLeak> leaks_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
