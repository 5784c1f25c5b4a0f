// Operations between the lanes of a warp: shfl, vote, match, redux, elect and bar.warp.sync.
//
// The .sync forms name their lanes. They may arrive from different places, also from different call
// depths; the operation happens when the last of them (exited lanes aside) has come. Until then a
// split waits.
#include <cstring>

#include "emulator/machine.h"
#include "emulator/warp_shuffle.h"

namespace ops_debug::emulator {
namespace {

const Instruction& Current(const Split& split) { return split.frame->function->code[split.pc]; }

// Lanes whose value is `value`.
uint32_t LanesWith(const uint32_t* values, uint32_t value) {
  uint32_t lanes = 0;
  for (uint32_t i = 0; i < kWarpLanes; ++i) lanes |= static_cast<uint32_t>(values[i] == value) << i;
  return lanes;
}

uint32_t Reduced(const WarpOperation& operation, uint32_t x, uint32_t y) {
  const bool less = operation.is_signed ? static_cast<int32_t>(x) < static_cast<int32_t>(y) : x < y;
  switch (operation.reduce) {
    case ReduceKind::kAdd:
      return x + y;
    case ReduceKind::kMin:
      return less ? x : y;
    case ReduceKind::kMax:
      return less ? y : x;
    case ReduceKind::kAnd:
      return x & y;
    case ReduceKind::kOr:
      return x | y;
    case ReduceKind::kXor:
      return x ^ y;
  }
  return x;
}

}  // namespace

// Lane that `lane` reads from, or itself if that lies outside its segment (PTX ISA 9.0, shfl.sync).
// `in_range` is the predicate result.
uint32_t SourceLane(ShuffleKind kind, uint32_t lane, uint32_t b, uint32_t c, bool* in_range) {
  const uint32_t segment_mask = (c >> 8) & 31;
  const uint32_t clamp = c & 31;
  const auto limit = static_cast<int32_t>((lane & segment_mask) | (clamp & ~segment_mask));
  const auto self = static_cast<int32_t>(lane);
  const auto delta = static_cast<int32_t>(b & 31);
  int32_t source = self;
  switch (kind) {
    case ShuffleKind::kUp:
      source = self - delta;
      *in_range = source >= limit;
      break;
    case ShuffleKind::kDown:
      source = self + delta;
      *in_range = source <= limit;
      break;
    case ShuffleKind::kButterfly:
      source = self ^ delta;
      *in_range = source <= limit;
      break;
    case ShuffleKind::kIndex:
      source = static_cast<int32_t>((lane & segment_mask) |
                                    (static_cast<uint32_t>(delta) & ~segment_mask));
      *in_range = source <= limit;
      break;
  }
  return static_cast<uint32_t>(*in_range ? source & 31 : self);
}

bool Machine::WarpOperate(Warp& warp, Split& split, const Instruction& in) {
  if (launch_.checks != nullptr) TellArrival(warp, *split.frame, in, split.lanes);
  const WarpOperation& operation = *in.fn.warp;
  bool has_parted = false;
  uint32_t members = split.lanes;
  if (operation.members != kNoRef) {
    const auto* masks = reinterpret_cast<const uint32_t*>(At(*split.frame, operation.members));
    const uint32_t mask = masks[__builtin_ctz(split.lanes)];
    if ((operation.members & kConstantBit) == 0) {
      // Lanes with other masks are groups of their own (tiles of a warp), each with its result.
      const uint32_t others = split.lanes & ~LanesWith(masks, mask);
      has_parted = others != 0;
      if (has_parted) {
        AddSplit(warp, split, others, split.pc);
        split.lanes &= ~others;
        members = split.lanes;
      }
    }
    members |= mask;
  }
  if ((members & ~warp.gone() & ~split.lanes) == 0) {
    Split* const alone[1] = {&split};
    Perform(warp, alone, 1, split.lanes);
    ++split.pc;
    return !has_parted;
  }
  split.state = Split::State::kWarpSync;
  split.members = members;
  CompleteWarpSync(warp);
  return false;
}

void Machine::CompleteWarpSync(Warp& warp) {
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    if (warp.splits[i].state != Split::State::kWarpSync) continue;
    const Op op = Current(warp.splits[i]).op;
    const uint32_t needed = warp.splits[i].members & ~warp.gone();
    Split* participants[kWarpLanes];
    uint32_t count = 0;
    uint32_t lanes = 0;
    for (uint32_t j = i; j < warp.split_count; ++j) {
      Split& other = warp.splits[j];
      if (other.state != Split::State::kWarpSync || (other.lanes & needed) == 0 ||
          Current(other).op != op)
        continue;
      participants[count++] = &other;
      lanes |= other.lanes;
    }
    if ((needed & ~lanes) != 0) continue;
    Perform(warp, participants, count, lanes);
    for (uint32_t k = 0; k < count; ++k) {
      participants[k]->state = Split::State::kReady;
      ++participants[k]->pc;
    }
  }
}

// Lanes first deposit their values, then each takes its result with its own operands.
void Machine::Perform(Warp& warp, Split* const* participants, uint32_t count, uint32_t lanes) {
  const Op op = Current(*participants[0]).op;
  if (launch_.checks != nullptr)
    launch_.checks->CompleteWarpOperation(warp, op, participants, count, lanes);
  if (op == Op::kWarpSync) {
    if (weak_ != nullptr) weak_->Acquire(warp, lanes);
    return;
  }
  alignas(kLaneArrayAlignment) uint64_t values[kWarpLanes] = {};
  uint32_t votes = 0;
  for (uint32_t p = 0; p < count; ++p) {
    Frame& frame = *participants[p]->frame;
    const WarpOperation& operation = *Current(*participants[p]).fn.warp;
    if (op == Op::kVote) {
      votes |= PredicateAt(frame, operation.a) & participants[p]->lanes;
      continue;
    }
    if (operation.a == kNoRef) continue;
    const std::byte* const a = At(frame, operation.a);
    // Lanes outside the operation keep what their register holds: what a GPU returns for them is
    // undefined.
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      if (p != 0 && ((participants[p]->lanes >> i) & 1) == 0) continue;
      std::memcpy(&values[i], a + (static_cast<size_t>(i) << operation.width),
                  size_t{1} << operation.width);
    }
  }
  uint32_t reduction = 0;
  bool all_equal = true;
  const auto first = static_cast<uint32_t>(__builtin_ctz(lanes));
  if (op == Op::kReduce || op == Op::kMatch) {
    reduction = static_cast<uint32_t>(values[first]);
    for (uint32_t m = lanes & (lanes - 1); m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (op == Op::kReduce) {
        reduction = Reduced(*Current(*participants[0]).fn.warp, reduction,
                            static_cast<uint32_t>(values[lane]));
      }
      all_equal = all_equal && values[lane] == values[first];
    }
  }
  for (uint32_t p = 0; p < count; ++p) {
    Frame& frame = *participants[p]->frame;
    const uint32_t own = participants[p]->lanes;
    const WarpOperation& operation = *Current(*participants[p]).fn.warp;
    alignas(kLaneArrayAlignment) uint32_t results[kWarpLanes] = {};
    uint32_t predicate = 0;
    switch (op) {
      case Op::kShuffle: {
        const auto* b = reinterpret_cast<const uint32_t*>(At(frame, operation.b));
        const auto* c = reinterpret_cast<const uint32_t*>(At(frame, operation.c));
        for (uint32_t i = 0; i < kWarpLanes; ++i) {
          bool in_range = false;
          results[i] = static_cast<uint32_t>(
              values[SourceLane(operation.shuffle, i, b[i], c[i], &in_range)]);
          predicate |= static_cast<uint32_t>(in_range) << i;
        }
        break;
      }
      case Op::kVote: {
        const bool all = votes == lanes;
        const bool any = votes != 0;
        for (uint32_t& result : results) result = votes;
        const bool holds = operation.vote == VoteKind::kAll   ? all
                           : operation.vote == VoteKind::kAny ? any
                                                              : all || !any;
        predicate = holds ? ~0u : 0u;
        break;
      }
      case Op::kMatch:
        predicate = all_equal ? ~0u : 0u;
        for (uint32_t m = own; m != 0; m &= m - 1) {
          const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
          if (operation.all) {
            results[lane] = all_equal ? lanes : 0;
            continue;
          }
          for (uint32_t n = lanes; n != 0; n &= n - 1) {
            const auto other = static_cast<uint32_t>(__builtin_ctz(n));
            if (values[other] == values[lane]) results[lane] |= 1u << other;
          }
        }
        break;
      case Op::kReduce:
        for (uint32_t& result : results) result = reduction;
        break;
      case Op::kElect:
        for (uint32_t& result : results) result = first;
        predicate = 1u << first;
        break;
      default:
        break;
    }
    StoreLanes32(frame, operation.d, results, own);
    if (operation.predicate != kNoRef) SetPredicate(frame, operation.predicate, predicate, own);
  }
}

}  // namespace ops_debug::emulator
