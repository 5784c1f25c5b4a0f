// One walk from the start and from each barrier gives the intervals.
#include "shadow/passes/barrier_intervals.h"

#include <algorithm>
#include <map>
#include <set>

#include "ptx/cfg.h"
#include "shadow/passes/synchronisation.h"
#include "shadow/passes/uniformity.h"

namespace ops_debug::shadow {
namespace {

using ptx::BlockId;
using ptx::ControlFlow;
using ptx::Function;
using ptx::Instruction;

class Intervals {
 public:
  Intervals(const Function& function, const ControlFlow& flow,
            std::span<const IntervalAccess> accesses)
      : function_(function),
        flow_(flow),
        at_(function.body.size(), -1),
        next_(accesses.size(), -1) {
    // Several accesses of one instruction form a list.
    for (size_t i = 0; i < accesses.size(); i++) {
      next_[i] = at_[accesses[i].statement];
      at_[accesses[i].statement] = static_cast<int>(i);
    }
  }

  // Accesses between `statement` and the next barriers.
  std::vector<uint32_t> From(uint32_t statement) const {
    std::vector<uint32_t> found;
    std::vector<bool> entered(flow_.blocks().size(), false);
    std::vector<uint32_t> todo{statement};
    while (!todo.empty()) {
      const uint32_t begin = todo.back();
      todo.pop_back();
      if (begin >= function_.body.size()) continue;
      const ptx::BasicBlock& block = flow_.blocks()[flow_.BlockOf(begin)];
      bool ended = false;
      for (uint32_t i = begin; i < block.end && !ended; i++) {
        for (int k = at_[i]; k >= 0; k = next_[static_cast<size_t>(k)])
          found.push_back(static_cast<uint32_t>(k));
        const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
        ended = instruction != nullptr && !instruction->guard.Present() &&
                DescribeBarrier(*instruction).kind == Barrier::kBlock;
      }
      if (ended) continue;
      for (BlockId next : block.successors) {
        if (entered[next]) continue;
        entered[next] = true;
        todo.push_back(flow_.blocks()[next].begin);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  const Function& function_;
  const ControlFlow& flow_;
  std::vector<int> at_, next_;
};

// Sets of accesses, joined step by step.
class Groups {
 public:
  explicit Groups(size_t size) : of_(size) {
    for (uint32_t i = 0; i < size; i++) of_[i] = i;
  }
  uint32_t Of(uint32_t i) {
    while (of_[i] != i) i = of_[i] = of_[of_[i]];
    return i;
  }
  void Join(uint32_t a, uint32_t b) { of_[Of(a)] = Of(b); }

 private:
  std::vector<uint32_t> of_;
};

// What meets a write among accesses that are between the same barriers.
void MeetWrites(std::span<const IntervalAccess> accesses, std::span<const uint32_t> together,
                Groups* groups, std::vector<bool>* meets) {
  // By array: the first access of it, and whether one writes. Those of no known array meet all.
  struct Seen {
    uint32_t first = 0;
    bool writes = false;
  };
  std::map<int64_t, Seen> seen;
  bool any_write = false;
  for (const uint32_t k : together) {
    Seen& array = seen.try_emplace(accesses[k].array, Seen{k}).first->second;
    array.writes = array.writes || accesses[k].writes;
    any_write = any_write || accesses[k].writes;
  }
  const auto unknown = seen.find(-1);
  const bool writes_unknown = unknown != seen.end() && unknown->second.writes;
  for (const uint32_t k : together) {
    const Seen& array = seen.at(accesses[k].array);
    if (!array.writes && !writes_unknown && !(accesses[k].array < 0 && any_write)) continue;
    (*meets)[k] = true;
    groups->Join(k, array.first);
    if (unknown != seen.end()) groups->Join(k, unknown->second.first);
  }
}

// The statements behind which an interval begins; empty if the barriers are not surely passed
// alike.
std::vector<uint32_t> IntervalStarts(const Function& function, const ControlFlow& flow) {
  std::vector<uint32_t> starts{0};
  for (uint32_t i = 0; i < function.body.size(); i++) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr) continue;
    if (instruction->Is("call")) return {};
    switch (DescribeBarrier(*instruction).kind) {
      case Barrier::kNamed:
      case Barrier::kNamedOnly:
        return {};
      case Barrier::kBlock:
        starts.push_back(i + 1);
        break;
      case Barrier::kNone:
      case Barrier::kWarp:
        break;
    }
  }
  const Uniformity uniformity(function, flow, Uniformity::Group::kBlock);
  for (size_t i = 1; i < starts.size(); i++) {
    const uint32_t barrier = starts[i] - 1;
    const auto& instruction = std::get<Instruction>(function.body[barrier]);
    if (uniformity.IsDivergent(barrier) ||
        (instruction.guard.Present() && uniformity.Differs(instruction.guard.reg))) {
      return {};
    }
  }
  return starts;
}

}  // namespace

std::vector<IntervalMeeting> FindMeetings(const Function& function,
                                          std::span<const IntervalAccess> accesses) {
  std::vector<bool> meets(accesses.size(), false);
  Groups groups(accesses.size());
  std::vector<uint32_t> starts;
  auto flow = ControlFlow::Build(function);
  if (flow.ok()) starts = IntervalStarts(function, *flow);
  const bool alike = !starts.empty();
  if (alike) {
    const Intervals intervals(function, *flow, accesses);
    for (const uint32_t start : starts)
      MeetWrites(accesses, intervals.From(start), &groups, &meets);
  } else {
    std::vector<uint32_t> together(accesses.size());
    for (uint32_t i = 0; i < together.size(); i++) together[i] = i;
    MeetWrites(accesses, together, &groups, &meets);
  }
  std::vector<IntervalMeeting> result(accesses.size());
  for (uint32_t i = 0; i < accesses.size(); i++) {
    result[i].unraced = alike && !accesses[i].writes && !meets[i];
    result[i].group = groups.Of(i);
  }
  return result;
}

}  // namespace ops_debug::shadow
