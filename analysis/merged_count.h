// How often something happened, added up over messages of several engines. A replay on the CPU
// device runs a launch once more that the GPU ran: what it counts was counted there already, if the
// device saw it at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace ops_debug::analysis {

inline bool IsReplay(const std::string& engine) { return engine == "replay"; }

class MergedCount {
 public:
  // `count` 0: at least one.
  void Add(const std::string& engine, uint64_t count) {
    Sum& sum = IsReplay(engine) ? replayed_ : seen_;
    sum.count += std::max<uint64_t>(count, 1);
    sum.is_lower_bound |= count == 0;
  }
  uint64_t Total() const { return Speaker().count; }
  bool IsLowerBound() const { return Speaker().is_lower_bound; }

 private:
  struct Sum {
    uint64_t count = 0;
    bool is_lower_bound = false;
  };
  const Sum& Speaker() const { return seen_.count > 0 ? seen_ : replayed_; }

  Sum seen_, replayed_;
};

}  // namespace ops_debug::analysis
