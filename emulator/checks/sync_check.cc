// Barriers of a block and of a cluster, and masks of operations between lanes. sync_check.h says
// what counts as a fault.
#include "emulator/checks/sync_check.h"

#include <algorithm>
#include <utility>

#include "emulator/checks/sync_fault_kind.h"

namespace ops_debug::emulator {
namespace {

uint32_t CountOf(uint32_t lanes) { return static_cast<uint32_t>(__builtin_popcount(lanes)); }
uint32_t FirstOf(uint32_t lanes) { return static_cast<uint32_t>(__builtin_ctz(lanes)); }

std::string BarrierName(uint32_t id) { return "barrier " + std::to_string(id); }

// The value of a 32-bit operand differs between `lanes`.
bool Differs(Frame& frame, Ref ref, uint32_t lanes) {
  if (ref == kNoRef || (ref & kConstantBit) != 0) return false;
  const auto* values = reinterpret_cast<const uint32_t*>(Machine::At(frame, ref));
  const uint32_t first = values[FirstOf(lanes)];
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    if (values[FirstOf(m)] != first) return true;
  }
  return false;
}

}  // namespace

SyncCheck::SyncCheck(Checks& checks, Launch& launch,
                     std::shared_ptr<const DeviceOperation> operation)
    : checks_(checks), launch_(launch), operation_(std::move(operation)) {}
SyncCheck::~SyncCheck() = default;

SyncCheck::Arrivals& SyncCheck::Phase::From(const Place& place, size_t warps) {
  for (Arrivals& known : arrivals) {
    if (known.place == place) return known;
  }
  Arrivals& added = arrivals.emplace_back();
  added.place = place;
  added.lanes.assign(warps, 0);
  return added;
}

uint32_t SyncCheck::Phase::LanesOf(size_t warp) const {
  uint32_t lanes = 0;
  for (const Arrivals& from : arrivals) lanes |= from.lanes[warp];
  return lanes;
}

void SyncCheck::StartBlock(Block& block) {
  BlockState& state = blocks_[&block];
  state = BlockState{};
  state.warps.resize(block.warps.size());
  if (block.cluster_rank == 0) clusters_.erase(block.cluster);
}

void SyncCheck::EndBlock(Block& block) { blocks_.erase(&block); }

SyncCheck::BlockState& SyncCheck::StateOf(const Block& block) {
  BlockState& state = blocks_[&block];
  if (state.warps.empty()) state.warps.resize(block.warps.size());
  return state;
}

void SyncCheck::Exit(Warp& warp, uint32_t lanes) {
  BlockState& state = StateOf(*warp.block);
  const Place place = PlaceOf(warp, lanes);
  for (uint32_t m = lanes; m != 0; m &= m - 1) state.warps[warp.index].exits[FirstOf(m)] = place;
}

bool SyncCheck::WentAround(const Place& place, const WarpState& warp, uint32_t lanes) {
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const Place& exit = warp.exits[FirstOf(m)];
    if (exit.function != nullptr && Flow().WentAround(place.kernel_pc, exit.kernel_pc)) return true;
  }
  return false;
}

const ControlFlow& SyncCheck::Flow() {
  if (flow_ == nullptr) {
    flow_ = std::make_unique<ControlFlow>(*launch_.program->functions[launch_.kernel->function]);
  }
  return *flow_;
}

// ---- bar, barrier

void SyncCheck::ArriveAtBarrier(const BarrierArrival& arrival) {
  Warp& warp = *arrival.warp;
  const Block& block = *warp.block;
  const Place place = PlaceOf(warp, arrival.lanes);
  if (place.function == nullptr || IsTool(place)) return;
  Frame* frame = nullptr;
  const BarrierUse* use = nullptr;
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    if ((split.lanes & arrival.lanes) == 0) continue;
    frame = split.frame;
    use = frame->function->code[split.pc].fn.barrier;
  }
  Phase& phase = StateOf(block).barriers[arrival.id];
  const uint32_t lane = FirstOf(arrival.lanes);
  const std::string name = BarrierName(arrival.id);
  const uint32_t expected = arrival.expected_threads;
  const auto report = [&](std::string text) {
    Groups groups;
    AddTo(groups, warp, arrival.lanes, place,
          (arrival.kind == BarrierKind::kArrive ? "arrive at " : "wait at ") + name +
              (expected == 0 ? "" : " for " + std::to_string(expected) + " threads"));
    for (const Arrivals& from : phase.arrivals) {
      AddArrived(groups, block, from,
                 "arrived at " + name +
                     (from.expected_threads == 0
                          ? ""
                          : " for " + std::to_string(from.expected_threads) + " threads"));
    }
    Report(kBarrierCount, place, warp, lane, groups, std::move(text));
    phase.reported = kBarrierCount;
  };
  if (Differs(*frame, use->id, arrival.lanes) || Differs(*frame, use->threads, arrival.lanes)) {
    report("lanes of one warp name different barriers or thread counts in one instruction");
  } else if (expected % kWarpLanes != 0) {
    report(name + " is to wait for " + std::to_string(expected) +
           " threads, which is no multiple of the warp size");
  } else if (expected > block.warps.size() * kWarpLanes) {
    report(name + " is to wait for " + std::to_string(expected) + " threads, but the block has " +
           std::to_string(launch_.threads_per_block));
  } else if (!phase.arrivals.empty()) {
    const auto all = static_cast<uint32_t>(block.warps.size()) * kWarpLanes;
    const auto wanted = [all](uint32_t threads) { return threads == 0 ? all : threads; };
    const uint32_t first = phase.arrivals.front().expected_threads;
    if (wanted(first) != wanted(expected)) {
      report("threads meet at " + name + " with different counts, " +
             std::to_string(wanted(first)) + " and " + std::to_string(wanted(expected)));
    } else if ((phase.LanesOf(warp.index) & arrival.lanes) != 0) {
      report("a warp arrives again at " + name +
             ", which has not completed since it arrived before");
    }
  }
  Arrivals& from = phase.From(place, block.warps.size());
  from.aligned = use->aligned;
  from.expected_threads = expected;
  from.lanes[warp.index] |= arrival.lanes;
}

SyncCheck::Groups SyncCheck::ArrivedGroups(const Block& block, const Phase& phase,
                                           uint32_t id) const {
  Groups groups;
  for (const Arrivals& from : phase.arrivals) {
    const uint32_t expected =
        from.expected_threads == 0 ? launch_.threads_per_block : from.expected_threads;
    AddArrived(groups, block, from,
               "wait at " + BarrierName(id) + " for " + std::to_string(expected) + " threads");
  }
  return groups;
}

// Threads that are missing or elsewhere once are so at the barriers that follow as well: one fault.
void SyncCheck::ReportOnce(Phase& phase, uint32_t kind, const Place& place, const Warp& warp,
                           uint32_t lane, const Groups& groups) {
  if (phase.reported == 0) {
    phase.reported = kind;
    phase.reported_at = place;
  } else if (phase.reported != kind || (kind != kExitedThreads && !(place == phase.reported_at))) {
    return;
  }
  Report(kind, phase.reported_at, warp, lane, groups, {});
}

// Lanes of warps that came only in part. True if something was reported.
bool SyncCheck::CheckWarpsOf(Block& block, Phase& phase, uint32_t id, bool counted) {
  BlockState& state = StateOf(block);
  for (const auto& warp : block.warps) {
    const uint32_t arrived = phase.LanesOf(warp->index);
    if (arrived == 0) continue;
    const Arrivals* first = nullptr;
    uint32_t places = 0;
    bool aligned = false;
    for (const Arrivals& from : phase.arrivals) {
      if (from.lanes[warp->index] == 0) continue;
      if (first == nullptr) first = &from;
      aligned = aligned || from.aligned;
      ++places;
    }
    const uint32_t missing = warp->exists & ~arrived;
    const uint32_t exited = missing & warp->exited;
    const uint32_t live = missing & ~warp->exited;
    const uint32_t lane = FirstOf(first->lanes[warp->index]);
    if (aligned && places > 1) {
      ReportOnce(phase, kDivergentBarrier, first->place, *warp, lane,
                 ArrivedGroups(block, phase, id));
      return true;
    }
    if (aligned && counted && live != 0) {
      Groups groups = ArrivedGroups(block, phase, id);
      AddElsewhere(groups, *warp, live);
      ReportOnce(phase, kDivergentBarrier, first->place, *warp, lane, groups);
      return true;
    }
    if (exited != 0) {
      Groups groups = ArrivedGroups(block, phase, id);
      AddExited(groups, *warp, exited, true);
      const bool around = WentAround(first->place, state.warps[warp->index], exited);
      ReportOnce(phase, around ? kDivergentBarrier : kExitedThreads, first->place, *warp, lane,
                 groups);
      return true;
    }
  }
  return false;
}

// Of a barrier that the whole block is to come to: warps that have exited.
void SyncCheck::CheckMissingWarps(Block& block, Phase& phase, uint32_t id) {
  BlockState& state = StateOf(block);
  Groups missing;
  bool around = false;
  const Arrivals& first = phase.arrivals.front();
  for (const auto& warp : block.warps) {
    if (phase.LanesOf(warp->index) != 0 || warp->exists == 0) continue;
    AddExited(missing, *warp, warp->exists, false);
    around = around || WentAround(first.place, state.warps[warp->index], warp->exists);
  }
  if (missing.empty()) return;
  const auto whose = static_cast<size_t>(
      std::find_if(first.lanes.begin(), first.lanes.end(), [](uint32_t l) { return l != 0; }) -
      first.lanes.begin());
  const Warp& warp = *block.warps[whose];
  Groups groups;
  if (!phase.mixed.empty()) {
    groups = phase.mixed;
    groups.insert(groups.end(), missing.begin(), missing.end());
    const Group& mixed = phase.mixed.front();
    ReportOnce(phase, kDivergentBarrier, mixed.place, warp, FirstOf(first.lanes[whose]), groups);
    return;
  }
  groups = ArrivedGroups(block, phase, id);
  groups.insert(groups.end(), missing.begin(), missing.end());
  ReportOnce(phase, around ? kDivergentBarrier : kExitedThreads, first.place, warp,
             FirstOf(first.lanes[whose]), groups);
}

// Whether the places are different lines of the program, not copies of one line that the compiler
// has made. Without line information that is not known.
bool SyncCheck::AreDifferentLines(const Phase& phase) {
  const std::vector<SourceLine>* first = nullptr;
  for (const Arrivals& from : phase.arrivals) {
    const SiteId site =
        checks_.sites().Of(*launch_.program, *from.place.function, from.place.statement);
    const std::vector<SourceLine>& frames = checks_.sites()[site].frames;
    if (frames.empty()) return false;
    if (first == nullptr) first = &frames;
    const bool same = std::equal(first->begin(), first->end(), frames.begin(), frames.end(),
                                 [](const SourceLine& a, const SourceLine& b) {
                                   return a.line == b.line && a.file == b.file;
                                 });
    if (!same) return true;
  }
  return false;
}

void SyncCheck::CompleteBarrier(Block& block, uint32_t id) {
  Phase& phase = StateOf(block).barriers[id];
  if (phase.arrivals.empty()) return;
  const uint32_t expected = phase.arrivals.front().expected_threads;
  const bool counted = expected != 0;
  if (!CheckWarpsOf(block, phase, id, counted) && !counted) {
    if (phase.arrivals.size() > 1 && AreDifferentLines(phase)) {
      const Arrivals& from = phase.arrivals.front();
      const auto whose = static_cast<size_t>(
          std::find_if(from.lanes.begin(), from.lanes.end(), [](uint32_t l) { return l != 0; }) -
          from.lanes.begin());
      ReportOnce(phase, kDivergentBarrier, from.place, *block.warps[whose],
                 FirstOf(from.lanes[whose]), ArrivedGroups(block, phase, id));
      phase.arrivals.clear();
      return;
    }
    if (phase.mixed.empty() && phase.arrivals.size() > 1)
      phase.mixed = ArrivedGroups(block, phase, id);
    CheckMissingWarps(block, phase, id);
  }
  phase.arrivals.clear();
}

// ---- barrier.cluster

void SyncCheck::ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool /*release*/) {
  const Place place = PlaceOf(warp, lanes);
  if (place.function == nullptr) return;
  const Cluster& cluster = *warp.block->cluster;
  uint32_t& pending = StateOf(*warp.block).warps[warp.index].cluster_pending;
  if ((pending & lanes) != 0) {
    Groups groups;
    AddTo(groups, warp, pending & lanes, place, "arrive again at the barrier of the cluster");
    Report(kBarrierCount, place, warp, FirstOf(pending & lanes), groups,
           "a thread arrives twice at the barrier of its cluster without barrier.cluster.wait in "
           "between");
  }
  pending |= lanes;
  const size_t warps = warp.block->warps.size();
  clusters_[&cluster]
      .From(place, warps * cluster.blocks.size())
      .lanes[warp.block->cluster_rank * warps + warp.index] |= lanes;
}

void SyncCheck::CompleteClusterBarrier(Cluster& cluster) {
  Phase& phase = clusters_[&cluster];
  if (phase.arrivals.empty()) return;
  const size_t warps = launch_.warps_per_block;
  Groups groups, missing;
  const Warp* first = nullptr;
  uint32_t first_lane = 0;
  for (const Block* block : cluster.blocks) {
    uint32_t arrived = 0;
    for (const auto& warp : block->warps) {
      const size_t index = block->cluster_rank * warps + warp->index;
      const uint32_t lanes = phase.LanesOf(index);
      arrived |= lanes;
      if (lanes != 0 && first == nullptr) {
        first = warp.get();
        first_lane = FirstOf(lanes);
      }
      for (const Arrivals& from : phase.arrivals) {
        if (from.lanes[index] != 0) {
          AddTo(groups, *warp, from.lanes[index], from.place, "wait at the barrier of the cluster");
        }
      }
    }
    // Threads that have exited count as arrived (PTX ISA), so warps may leave early; a block that
    // has no thread left has made fewer cluster barriers than the others.
    if (arrived != 0) continue;
    for (const auto& warp : block->warps) {
      if (blocks_.count(block) != 0) {
        AddExited(missing, *warp, warp->exists, false);
      } else {
        AddTo(missing, *warp, warp->exists, Place{}, "returned");
      }
    }
  }
  if (phase.mixed.empty() && phase.arrivals.size() > 1) phase.mixed = groups;
  if (!missing.empty() && first != nullptr) {
    const bool mixed = !phase.mixed.empty();
    if (mixed) groups = phase.mixed;
    const Place place = groups.front().place;
    groups.insert(groups.end(), missing.begin(), missing.end());
    Report(mixed ? kDivergentBarrier : kExitedThreads, place, *first, first_lane, groups,
           mixed ? "blocks of a cluster execute different numbers of cluster barriers, so they "
                   "meet at different ones"
                 : "blocks of a cluster execute different numbers of cluster barriers: a whole "
                   "block has exited while others wait for the cluster");
  }
  phase.arrivals.clear();
}

void SyncCheck::LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool /*acquire*/) {
  uint32_t& pending = StateOf(*warp.block).warps[warp.index].cluster_pending;
  const uint32_t unannounced = lanes & ~pending;
  pending &= ~lanes;
  if (unannounced == 0) return;
  const Place place = PlaceOf(warp, lanes);
  if (place.function == nullptr) return;
  Groups groups;
  AddTo(groups, warp, unannounced, place, "wait at the barrier of the cluster");
  Report(kBarrierCount, place, warp, FirstOf(unannounced), groups,
         "a thread waits at the barrier of its cluster without having arrived there");
}

// ---- operations between lanes

void SyncCheck::CheckMasks(const WarpArrival& arrival, const Place& place) {
  Warp& warp = *arrival.warp;
  const uint32_t* masks = arrival.members;
  const auto hex = [](uint32_t mask) {
    char text[16];
    std::snprintf(text, sizeof(text), "0x%x", mask);
    return std::string(text);
  };
  const auto differ = [&](uint32_t a, uint32_t other, uint32_t mask_of_other) {
    Groups groups;
    AddTo(groups, warp, 1u << a, place, "name the lanes " + hex(masks[a]));
    AddTo(groups, warp, 1u << other, place, "name the lanes " + hex(mask_of_other));
    Report(kWarpMask, place, warp, a, groups,
           "lanes of one warp execute it together with different masks, " + hex(masks[a]) +
               " and " + hex(mask_of_other));
  };
  for (uint32_t m = arrival.lanes; m != 0; m &= m - 1) {
    const uint32_t lane = FirstOf(m);
    if (((masks[lane] >> lane) & 1) == 0) {
      Groups groups;
      AddTo(groups, warp, 1u << lane, place, "name the lanes " + hex(masks[lane]));
      Report(kWarpMask, place, warp, lane, groups,
             "lane " + std::to_string(lane) + " names the lanes " + hex(masks[lane]) +
                 ", which it is not one of");
      return;
    }
    for (uint32_t n = masks[lane] & arrival.lanes; n != 0; n &= n - 1) {
      if (masks[FirstOf(n)] != masks[lane]) return differ(lane, FirstOf(n), masks[FirstOf(n)]);
    }
  }
  // Lanes that wait at the same instruction already.
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    const Split& split = warp.splits[i];
    if (split.state != Split::State::kWarpSync || (split.lanes & arrival.lanes) != 0) continue;
    const uint32_t named = split.members & arrival.lanes;
    if (named == 0 || !(PlaceOf(split) == place)) continue;
    if (masks[FirstOf(named)] != split.members)
      return differ(FirstOf(named), FirstOf(split.lanes), split.members);
  }
}

void SyncCheck::ArriveAtWarpOperation(const WarpArrival& arrival) {
  if (arrival.members == nullptr || arrival.in->fn.warp->is_convergence) return;
  // The common case in few instructions: one mask, which names all that are here.
  const uint32_t mask = arrival.members[FirstOf(arrival.lanes)];
  bool same = (arrival.lanes & ~mask) == 0;
  for (uint32_t i = 0; i < kWarpLanes; ++i)
    same = same && (((arrival.lanes >> i) & 1) == 0 || arrival.members[i] == mask);
  if (same && arrival.warp->split_count == 1) return;
  const Place place = PlaceOf(*arrival.warp, arrival.lanes);
  if (place.function == nullptr || IsTool(place)) return;
  CheckMasks(arrival, place);
}

void SyncCheck::CompleteWarpOperation(Warp& warp, Op /*op*/, Split* const* splits, uint32_t count,
                                      uint32_t lanes) {
  if (lanes == warp.exists && count == 1) return;
  const Split& split = *splits[0];
  const WarpOperation& operation = *split.frame->function->code[split.pc].fn.warp;
  if (operation.members == kNoRef) return;
  const Place place = PlaceOf(split);
  if (IsTool(place)) return;
  WarpState& state = StateOf(*warp.block).warps[warp.index];
  for (uint32_t i = 1; i < count && state.mixed.function == nullptr; ++i) {
    const Place other = PlaceOf(*splits[i]);
    if (other == place) continue;
    state.mixed = place;
    state.mixed_with = other;
  }
  uint32_t named = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Frame& frame = *splits[i]->frame;
    const WarpOperation& own = *frame.function->code[splits[i]->pc].fn.warp;
    const auto* masks = reinterpret_cast<const uint32_t*>(Machine::At(frame, own.members));
    named |= masks[FirstOf(splits[i]->lanes)];
  }
  const uint32_t missing = named & warp.exists & ~lanes & warp.exited;
  if (missing == 0) return;
  const bool mixed = state.mixed.function != nullptr;
  const bool around = WentAround(place, state, missing);
  if (!mixed && !around && !operation.is_convergence) return;
  Groups groups;
  AddTo(groups, warp, lanes, mixed ? state.mixed : place, "execute it");
  AddExited(groups, warp, missing, true);
  std::string text;
  if (operation.is_convergence) {
    text = "only " + std::to_string(CountOf(lanes)) + " of " +
           std::to_string(CountOf(warp.exists)) +
           " lanes of the warp execute an instruction that all of them must execute together";
  } else {
    text = "the mask names " + std::to_string(CountOf(missing)) +
           (CountOf(missing) == 1 ? " lane that does not execute it"
                                  : " lanes that do not execute it");
  }
  Report(kWarpMask, mixed ? state.mixed : place, warp, FirstOf(lanes), groups, std::move(text));
}

}  // namespace ops_debug::emulator
