// From reads of bytes that nobody wrote to findings: merged by process, kernel and source line, for
// the author has one hole in the initialisation per line. The earliest launch speaks, then the
// lowest thread; counts add up.
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

class InitDetector {
 public:
  explicit InitDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::UninitialisedRead& read);

  // In the order in which they first happened.
  std::vector<Finding> Finish();

 private:
  struct Merged {
    proto::UninitialisedRead first;
    MergedCount count;
    size_t order = 0;
  };
  using Key = std::pair<uint32_t, std::string>;  // process; place

  Finding MakeFinding(uint32_t process_id, const Merged& merged);

  HostSymbolizer& symbolizer_;
  std::map<Key, Merged> reads_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
