// The sixteen named barriers of a block. Threads arrive one by one, so a barrier in divergent code
// completes as soon as every thread has come to some bar instruction of that number or has exited,
// as on Volta and later. The barrier of a cluster works the same way, in two steps: arrive marks
// the thread, wait sleeps until the phase in which it arrived is over (PTX ISA 9.0,
// barrier.cluster).
#include <algorithm>

#include "emulator/machine.h"

namespace ops_debug::emulator {

bool Machine::ArriveAtBarrier(Warp& warp, Split& split, const Instruction& in) {
  const BarrierUse& use = *in.fn.barrier;
  Frame& frame = *split.frame;
  const auto first = static_cast<uint32_t>(__builtin_ctz(split.lanes));
  const auto value = [&](Ref ref) {
    return reinterpret_cast<const uint32_t*>(At(frame, ref))[first];
  };
  const uint32_t id = value(use.id);
  if (id >= Block::kBarriers) {
    return Fail(LaunchError::Code::kIllegalInstruction, warp, first,
                "barrier " + std::to_string(id) + " of 16");
  }
  Block& block = *warp.block;
  if (LaunchChecks* const checks = ChecksOf(frame, in)) {
    checks->ArriveAtBarrier({&warp, frame.function, in.statement, split.lanes, id,
                             use.threads == kNoRef ? 0 : value(use.threads), use.kind});
  }
  Barrier& barrier = block.barriers[id];
  barrier.in_use = true;
  barrier.arrived[warp.index] |= split.lanes;
  if (use.threads != kNoRef) barrier.expected_threads = value(use.threads);
  if (use.predicate != kNoRef) {
    barrier.predicate_count +=
        static_cast<uint32_t>(__builtin_popcount(PredicateAt(frame, use.predicate) & split.lanes));
    barrier.reduced_threads += static_cast<uint32_t>(__builtin_popcount(split.lanes));
  }
  if (use.kind == BarrierKind::kArrive) {
    ++split.pc;
  } else {
    split.state = Split::State::kBarrier;
    split.barrier = static_cast<uint8_t>(id);
  }
  CheckBarrier(block, id);
  return true;
}

void Machine::CheckBarrier(Block& block, uint32_t id) {
  Barrier& barrier = block.barriers[id];
  if (!barrier.in_use) return;
  uint32_t arrived = 0;
  for (const auto& warp : block.warps) {
    const uint32_t lanes = barrier.arrived[warp->index];
    if (barrier.expected_threads == 0) {
      if ((lanes | warp->gone()) != kAllLanes) return;
    } else if (lanes != 0) {
      // Counts are in whole warps: lanes that do not exist count with their warp.
      arrived += static_cast<uint32_t>(__builtin_popcount(lanes | warp->gone()));
    }
  }
  if (arrived < barrier.expected_threads) return;
  if (launch_.checks != nullptr) launch_.checks->CompleteBarrier(block, id);
  const bool all = barrier.predicate_count == barrier.reduced_threads;
  const bool any = barrier.predicate_count != 0;
  for (const auto& warp : block.warps) {
    for (uint32_t i = 0; i < warp->split_count; ++i) {
      Split& split = warp->splits[i];
      if (split.state != Split::State::kBarrier || split.barrier != id) continue;
      const Instruction& in = split.frame->function->code[split.pc];
      switch (in.fn.barrier->kind) {
        case BarrierKind::kReduceAnd:
          SetPredicate(*split.frame, in.d, all ? ~0u : 0u, split.lanes);
          break;
        case BarrierKind::kReduceOr:
          SetPredicate(*split.frame, in.d, any ? ~0u : 0u, split.lanes);
          break;
        case BarrierKind::kReducePopc: {
          alignas(kLaneArrayAlignment) uint32_t counts[kWarpLanes];
          for (uint32_t& count : counts) count = barrier.predicate_count;
          StoreLanes32(*split.frame, in.d, counts, split.lanes);
          break;
        }
        default:
          break;
      }
      if (weak_ != nullptr) weak_->Acquire(*warp, split.lanes);
      split.state = Split::State::kReady;
      ++split.pc;
    }
  }
  for (uint32_t& lanes : barrier.arrived) lanes = 0;
  barrier.expected_threads = barrier.predicate_count = barrier.reduced_threads = 0;
  barrier.in_use = false;
  if (observing_) launch_.changes.fetch_add(1);
}

void Machine::CheckAllBarriers(Block& block) {
  for (uint32_t id = 0; id < Block::kBarriers; ++id) CheckBarrier(block, id);
}

void Machine::ArriveAtClusterBarrier(Warp& warp, uint32_t lanes) {
  Cluster& cluster = *warp.block->cluster;
  cluster.ArrivedLanes(warp) |= lanes;
  CheckClusterBarrier(cluster);
}

// The phase ends when every thread of the cluster has arrived or exited; lanes at
// barrier.cluster.wait go on as soon as they are no longer among the arrived.
void Machine::CheckClusterBarrier(Cluster& cluster) {
  for (const Block* block : cluster.blocks) {
    for (const auto& warp : block->warps) {
      if ((cluster.ArrivedLanes(*warp) | warp->gone()) != kAllLanes) return;
    }
  }
  if (launch_.checks != nullptr) launch_.checks->CompleteClusterBarrier(cluster);
  std::fill(cluster.arrived.begin(), cluster.arrived.end(), 0);
}

}  // namespace ops_debug::emulator
