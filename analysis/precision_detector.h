// From numerical faults of instructions to findings: merged by process, kind and source line; one
// bug, one finding. What follows from a NaN or an infinity that was made in the run (it goes on, a
// NaN comes out of it, a comparison goes wrong) belongs to its maker. An infinity or a NaN that is
// made and dropped again (x / inf = 0, a guard behind the division) before anything stores it is
// right code mostly, and a note.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/merged_count.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class PrecisionDetector {
 public:
  explicit PrecisionDetector(HostSymbolizer& symbolizer) : symbolizer_(symbolizer) {}

  void Add(uint32_t process_id, const proto::NumericalFault& fault);

  // In the order in which they first happened.
  std::vector<Finding> Finish();
  // What --trace-fp16-to-fp32 counted, in the order of the code.
  std::vector<Conversion> Conversions();

 private:
  struct Merged {
    uint32_t process_id = 0;
    proto::NumericalFault first;
    MergedCount count;
    uint64_t cases = 0;  // `count` 0 is none here
    uint64_t executions = 0;
    double worst = 0;
    uint32_t instructions = 1;
    size_t order = 0;
  };
  using Key = std::tuple<uint32_t, int, std::string>;  // process; kind; place

  // How the faults of one kernel hang together.
  struct KernelFacts {
    bool infinity_dropped = false;                     // x / inf, max with NaN...
    bool infinity_stored = false, nan_stored = false;  // or converted, to be stored
  };
  using KernelKey = std::pair<uint32_t, std::string>;

  void ReadFacts();
  bool IsDropped(const Merged& merged) const;
  // The maker of what this is a consequence of; null: it speaks for itself.
  const Merged* CauseOf(const Merged& merged) const;
  // The first of causes; `merged` itself if it has none.
  const Merged& RootOf(const Merged& merged) const;
  bool IsReported(const Merged& merged) const;
  Finding MakeFinding(const Merged& merged);
  void SetConsequences(const Merged& merged, Finding& finding) const;

  HostSymbolizer& symbolizer_;
  std::map<Key, Merged> faults_;
  std::map<Key, std::map<std::pair<uint32_t, std::string>, bool>> instructions_;
  std::map<KernelKey, KernelFacts> kernels_;
  size_t order_ = 0;
};

}  // namespace ops_debug::analysis
