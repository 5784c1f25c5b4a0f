// How undefined bits pass through arithmetic, comparisons, predicates and the operations between
// the lanes of a warp. Called before the instruction executes, so values are those of its sources.
#include <cstring>

#include "emulator/checks/definedness_flow.h"
#include "emulator/checks/init_check.h"
#include "emulator/machine.h"
#include "emulator/warp_shuffle.h"

namespace ops_debug::emulator {
namespace {

uint64_t ValueOf(Frame& frame, Ref ref, uint8_t shift, uint32_t lane) {
  uint64_t value = 0;
  std::memcpy(&value, Machine::At(frame, ref) + (size_t{lane} << shift), size_t{1} << shift);
  return value;
}

// A lane array of values for a lane operation.
struct Values {
  alignas(kLaneArrayAlignment) std::byte bytes[kWarpLanes * sizeof(uint64_t)] = {};
  void Put(uint8_t shift, uint32_t lane, uint64_t value) {
    std::memcpy(bytes + (size_t{lane} << shift), &value, size_t{1} << shift);
  }
  uint64_t Get(uint8_t shift, uint32_t lane) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes + (size_t{lane} << shift), size_t{1} << shift);
    return value;
  }
};

// All bits of every part of `part_bits` in which a bit is set.
uint64_t WholeParts(uint64_t bits, uint32_t part_bits, uint64_t mask) {
  uint64_t out = 0;
  const uint64_t part = part_bits >= 64 ? ~0ull : (1ull << part_bits) - 1;
  for (uint32_t at = 0; at < 64; at += part_bits) {
    if (((bits >> at) & part) != 0) out |= part << at;
  }
  return out & mask;
}

// Least and greatest value that undefined bits allow, as unsigned or signed numbers of a width.
uint64_t Least(uint64_t value, uint64_t undefined, bool is_signed, uint8_t shift) {
  const uint64_t sign = 1ull << ((8u << shift) - 1);
  return (value & ~undefined) | (is_signed ? undefined & sign : 0);
}
uint64_t Greatest(uint64_t value, uint64_t undefined, bool is_signed, uint8_t shift) {
  const uint64_t sign = 1ull << ((8u << shift) - 1);
  return is_signed ? (value | undefined) & ~(undefined & sign) : value | undefined;
}

}  // namespace

void InitCheck::PassAlu(Frame& frame, const Instruction& in, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  const Ref sources[3] = {in.a, in.b, in.c};
  bool any = false;
  for (const Ref source : sources) any = any || registers.IsUndefined(source);
  if (!any) return registers.Define(in.d, in.width, lanes);

  UndefinedLanes out;
  out.Clear();
  const uint64_t mask = WidthMask(in.width);
  const auto bits = [&](uint32_t i, uint32_t lane) {
    return registers.IsUndefined(sources[i])
               ? registers.BitsOf(sources[i], ShiftOf(frame, sources[i]), lane)
               : 0;
  };
  const auto flow = static_cast<Flow>(in.flow);
  bool is_moved = true;  // a plain copy of (some) bits
  switch (flow) {
    case Flow::kMove:
    case Flow::kMoveByB:
    case Flow::kMoveByC:
    case Flow::kMoveByBC: {
      const bool by_b = flow == Flow::kMoveByB || flow == Flow::kMoveByBC;
      const bool by_c = flow == Flow::kMoveByC || flow == Flow::kMoveByBC;
      in.fn.alu(out.bits, registers.Bits(in.a),
                by_b ? Machine::At(frame, in.b) : registers.Bits(in.b),
                by_c ? Machine::At(frame, in.c) : registers.Bits(in.c), in.immediate);
      ForLanes(lanes, [&](uint32_t lane) {
        if ((by_b && bits(1, lane) != 0) || (by_c && bits(2, lane) != 0))
          out.Put(in.width, lane, mask);
      });
      break;
    }
    default: {
      uint8_t shift = in.width;  // of a and b
      for (const uint32_t i : {1u, 0u}) {
        if (registers.IsUndefined(sources[i])) shift = ShiftOf(frame, sources[i]);
      }
      const auto value = [&](uint32_t i, uint32_t lane) {
        return ValueOf(frame, sources[i], i == 2 ? in.width : shift, lane);
      };
      is_moved = flow == Flow::kUnion || flow == Flow::kAnd || flow == Flow::kOr ||
                 flow == Flow::kTable || flow == Flow::kChoose;
      ForLanes(lanes, [&](uint32_t lane) {
        const uint64_t ua = bits(0, lane), ub = bits(1, lane), uc = bits(2, lane);
        uint64_t u = 0;
        if ((ua | ub | uc) == 0) return;
        switch (flow) {
          case Flow::kUnion:
            u = ua | ub;
            break;
          case Flow::kAnd:
            u = UndefinedAnd(value(0, lane), ua, value(1, lane), ub);
            break;
          case Flow::kOr:
            u = UndefinedOr(value(0, lane), ua, value(1, lane), ub);
            break;
          case Flow::kTable: {
            const uint64_t v[3] = {value(0, lane), value(1, lane), value(2, lane)};
            const uint64_t undefined[3] = {ua, ub, uc};
            u = UndefinedTable(v, undefined, in.immediate);
            break;
          }
          case Flow::kLeft:
            u = ~0ull << __builtin_ctzll(ua);
            break;
          case Flow::kAdd:
            u = UndefinedSum(value(0, lane), ua, value(1, lane), ub);
            break;
          case Flow::kSubtract:
            u = UndefinedDifference(value(0, lane), ua, value(1, lane), ub);
            break;
          case Flow::kMultiply:
            u = UndefinedProduct(value(0, lane), ua, value(1, lane), ub);
            break;
          case Flow::kMultiplyAdd: {
            const uint64_t either = uc | UndefinedProduct(value(0, lane), ua, value(1, lane), ub);
            u = either == 0 ? 0 : ~0ull << __builtin_ctzll(either);
            break;
          }
          case Flow::kChoose:
            if ((uc >> 31 & 1) != 0) {
              u = ua | ub | (value(0, lane) ^ value(1, lane));
            } else {
              u = (ValueOf(frame, in.c, 2, lane) >> 31 & 1) == 0 ? ua : ub;
            }
            break;
          case Flow::kAnyHalf:
            u = WholeParts(ua | ub | uc, 16, mask);
            break;
          case Flow::kAnyWord:
            u = WholeParts(ua | ub | uc, 32, mask);
            break;
          case Flow::kBytesOfHalves:
            u = ((ua & 0xffff) != 0 ? 0xffu : 0u) | ((ua >> 16) != 0 ? 0xff00u : 0u);
            break;
          case Flow::kHalvesOfBytes:
            u = ((ua & 0xff) != 0 ? 0xffffu : 0u) | ((ua >> 8) != 0 ? 0xffff0000u : 0u);
            break;
          case Flow::kBytesOfWords:
            u = (ua != 0 ? 0xff00u : 0u) | (ub != 0 ? 0xffu : 0u);
            break;
          default:
            u = mask;
            break;
        }
        out.Put(in.width, lane, u & mask);
      });
      break;
    }
  }
  ForLanes(lanes, [&](uint32_t lane) {
    if (out.Get(in.width, lane) == 0) return;
    for (uint32_t i = 0; i < 3; ++i) {
      if (bits(i, lane) == 0) continue;
      const ReadOrigin origin = registers.OriginOf(sources[i], lane);
      out.origins[lane] = is_moved ? origin : origin & ~kCarried;
      break;
    }
  });
  registers.Set(in.d, in.width, out, lanes);
}

void InitCheck::PassSelect(Frame& frame, const Instruction& in, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  if (!registers.IsUndefined(in.a) && !registers.IsUndefined(in.b) &&
      !registers.IsUndefined(in.c)) {
    return registers.Define(in.d, in.width, lanes);
  }
  UndefinedLanes out;
  out.Clear();
  const uint32_t unknown = registers.Predicate(in.c);
  const uint32_t chosen = Machine::PredicateAt(frame, in.c);
  ForLanes(lanes, [&](uint32_t lane) {
    const uint64_t ua = registers.BitsOf(in.a, in.width, lane);
    const uint64_t ub = registers.BitsOf(in.b, in.width, lane);
    if ((unknown >> lane & 1) != 0) {
      const uint64_t differs =
          ValueOf(frame, in.a, in.width, lane) ^ ValueOf(frame, in.b, in.width, lane);
      out.Put(in.width, lane, ua | ub | differs);
      out.origins[lane] = registers.PredicateOrigin(in.c) & ~kCarried;
      return;
    }
    const bool is_a = (chosen >> lane & 1) != 0;
    const uint64_t u = is_a ? ua : ub;
    out.Put(in.width, lane, u);
    if (u != 0) out.origins[lane] = registers.OriginOf(is_a ? in.a : in.b, lane);
  });
  registers.Set(in.d, in.width, out, lanes);
}

void InitCheck::PassCompare(Frame& frame, const Instruction& in, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  const bool in_a = registers.IsUndefined(in.a), in_b = registers.IsUndefined(in.b);
  if (!in_a && !in_b) return registers.SetPredicate(in.d, 0, 0, lanes);
  const uint8_t shift = ShiftOf(frame, in_a ? in.a : in.b);
  const auto flow = static_cast<Flow>(in.flow);
  uint32_t affected = 0;  // lanes with an undefined bit
  uint32_t undefined = 0;
  ReadOrigin origin = 0;
  ForLanes(lanes, [&](uint32_t lane) {
    const uint64_t ua = registers.BitsOf(in.a, shift, lane);
    const uint64_t ub = registers.BitsOf(in.b, shift, lane);
    if ((ua | ub) == 0) return;
    affected |= 1u << lane;
    if (flow != Flow::kEqual) return;
    const uint64_t differs = ValueOf(frame, in.a, shift, lane) ^ ValueOf(frame, in.b, shift, lane);
    if ((differs & ~(ua | ub)) == 0) undefined |= 1u << lane;
  });
  if (flow == Flow::kUnsignedOrder || flow == Flow::kSignedOrder) {
    const bool is_signed = flow == Flow::kSignedOrder;
    Values least[2], greatest[2];
    ForLanes(affected, [&](uint32_t lane) {
      for (uint32_t i = 0; i < 2; ++i) {
        const Ref ref = i == 0 ? in.a : in.b;
        const uint64_t value = ValueOf(frame, ref, shift, lane);
        const uint64_t u = registers.BitsOf(ref, shift, lane);
        least[i].Put(shift, lane, Least(value, u, is_signed, shift));
        greatest[i].Put(shift, lane, Greatest(value, u, is_signed, shift));
      }
    });
    undefined = (in.fn.compare(least[0].bytes, greatest[1].bytes) ^
                 in.fn.compare(greatest[0].bytes, least[1].bytes)) &
                affected;
  } else if (flow != Flow::kEqual) {
    undefined = affected;
  }
  if (undefined != 0) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(undefined));
    origin = registers.BitsOf(in.a, shift, lane) != 0 ? registers.OriginOf(in.a, lane)
                                                      : registers.OriginOf(in.b, lane);
  }
  registers.SetPredicate(in.d, undefined, origin, lanes);
}

namespace {

uint32_t CombineUndefined(PredicateOp operation, uint32_t va, uint32_t ua, uint32_t vb,
                          uint32_t ub) {
  switch (operation) {
    case PredicateOp::kMove:
    case PredicateOp::kNot:
      return ua;
    case PredicateOp::kAnd:
      return static_cast<uint32_t>(UndefinedAnd(va, ua, vb, ub));
    case PredicateOp::kOr:
      return static_cast<uint32_t>(UndefinedOr(va, ua, vb, ub));
    case PredicateOp::kXor:
      return ua | ub;
  }
  return 0;
}

}  // namespace

// kPredicate and kCompareCombine.
void InitCheck::PassPredicates(Frame& frame, const Instruction& in, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  const Ref b = in.op == Op::kPredicate ? in.b : in.c;
  const uint32_t ua = registers.Predicate(in.a);
  const uint32_t ub = registers.Predicate(b);
  const ReadOrigin origin = ua != 0   ? registers.PredicateOrigin(in.a)
                            : ub != 0 ? registers.PredicateOrigin(b)
                                      : 0;
  const uint32_t va = Machine::PredicateAt(frame, in.a), vb = Machine::PredicateAt(frame, b);
  const auto operation = static_cast<PredicateOp>(in.extra);
  const uint32_t d = CombineUndefined(operation, va, ua, vb, ub);
  const uint32_t q = CombineUndefined(operation, ~va, ua, vb, ub);
  registers.SetPredicate(in.d, d, origin, lanes);
  if (in.op == Op::kCompareCombine) registers.SetPredicate(in.q, q, origin, lanes);
}

// Sums of the least and of the greatest values differ where a carry is not known.
void InitCheck::PassCarry(Frame& frame, const Instruction& in, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  const bool takes = (in.extra & 1) != 0, gives = (in.extra & 2) != 0;
  const uint32_t carry = takes ? registers.Predicate(in.q) : 0;
  if (carry == 0 && !registers.IsUndefined(in.a) && !registers.IsUndefined(in.b) &&
      !registers.IsUndefined(in.c)) {
    registers.Define(in.d, in.width, lanes);
    if (gives) registers.SetPredicate(in.q, 0, 0, lanes);
    return;
  }
  const auto flow = static_cast<Flow>(in.flow);
  const bool is_exact = flow == Flow::kCarryAdd || flow == Flow::kCarrySubtract;
  const bool is_sum = flow == Flow::kCarryAdd;
  Values a[2], b[2], result[2];
  UndefinedLanes out;
  out.Clear();
  uint32_t affected = 0;
  ReadOrigin origin = 0;
  ForLanes(lanes, [&](uint32_t lane) {
    const uint64_t ua = registers.BitsOf(in.a, in.width, lane);
    const uint64_t ub = registers.BitsOf(in.b, in.width, lane);
    const uint64_t uc = registers.BitsOf(in.c, in.width, lane);
    const uint64_t va = ValueOf(frame, in.a, in.width, lane);
    const uint64_t vb = ValueOf(frame, in.b, in.width, lane);
    // [0]: the least result, [1]: the greatest.
    a[0].Put(in.width, lane, va & ~ua);
    a[1].Put(in.width, lane, va | ua);
    b[0].Put(in.width, lane, is_sum ? vb & ~ub : vb | ub);
    b[1].Put(in.width, lane, is_sum ? vb | ub : vb & ~ub);
    if ((ua | ub | uc) == 0 && (carry >> lane & 1) == 0) return;
    affected |= 1u << lane;
    out.origins[lane] = (ua != 0   ? registers.OriginOf(in.a, lane)
                         : ub != 0 ? registers.OriginOf(in.b, lane)
                         : uc != 0 ? registers.OriginOf(in.c, lane)
                                   : registers.PredicateOrigin(in.q)) &
                        ~kCarried;
    if (origin == 0) origin = out.origins[lane];
    out.Put(in.width, lane, is_exact ? ua | ub : WidthMask(in.width));
  });
  uint32_t undefined_carry = affected;
  if (is_exact) {
    const uint32_t known = takes ? Machine::PredicateAt(frame, in.q) & ~carry : 0;
    // A borrow makes a difference less, a carry a sum greater.
    const uint32_t first = in.fn.carry(result[0].bytes, a[0].bytes, b[0].bytes, nullptr,
                                       is_sum ? known : known | carry);
    const uint32_t second = in.fn.carry(result[1].bytes, a[1].bytes, b[1].bytes, nullptr,
                                        is_sum ? known | carry : known);
    undefined_carry = (first ^ second) & affected;
    ForLanes(affected, [&](uint32_t lane) {
      out.Put(in.width, lane,
              out.Get(in.width, lane) |
                  (result[0].Get(in.width, lane) ^ result[1].Get(in.width, lane)));
    });
  }
  registers.Set(in.d, in.width, out, lanes);
  if (gives) registers.SetPredicate(in.q, undefined_carry, origin, lanes);
}

// shfl, vote, match, redux, elect: `lanes` take part, from several splits.
void InitCheck::PassWarpResults(Warp& /*warp*/, Op op, Split* const* splits, uint32_t count,
                                uint32_t lanes) {
  const auto operation_of = [&](uint32_t i) -> const WarpOperation& {
    return *splits[i]->frame->function->code[splits[i]->pc].fn.warp;
  };
  bool any = false;
  for (uint32_t i = 0; i < count; ++i) {
    RegisterDefinedness& registers = Registers(*splits[i]->frame);
    any = any || !registers.IsClean();
  }
  if (!any) return;

  uint64_t undefined[kWarpLanes] = {};
  uint64_t values[kWarpLanes] = {};
  ReadOrigin origins[kWarpLanes] = {};
  uint32_t votes = 0, unknown_votes = 0;
  ReadOrigin first_origin = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Frame& frame = *splits[i]->frame;
    const RegisterDefinedness& registers = Registers(frame);
    const WarpOperation& operation = operation_of(i);
    if (operation.a == kNoRef) continue;
    if (op == Op::kVote) {
      votes |= Machine::PredicateAt(frame, operation.a) & splits[i]->lanes;
      const uint32_t unknown = registers.Predicate(operation.a) & splits[i]->lanes;
      if (unknown != 0 && first_origin == 0) first_origin = registers.PredicateOrigin(operation.a);
      unknown_votes |= unknown;
      continue;
    }
    ForLanes(splits[i]->lanes, [&](uint32_t lane) {
      values[lane] = ValueOf(frame, operation.a, operation.width, lane);
      undefined[lane] = registers.BitsOf(operation.a, operation.width, lane);
      if (undefined[lane] == 0) return;
      origins[lane] = registers.OriginOf(operation.a, lane);
      if (first_origin == 0) first_origin = origins[lane];
    });
  }
  // Of results that all lanes have in common.
  uint64_t common = 0;
  bool common_predicate = false;
  const WarpOperation& first = operation_of(0);
  if (op == Op::kVote) {
    const uint32_t yes = votes & ~unknown_votes;
    const uint32_t no = lanes & ~votes & ~unknown_votes;
    common = unknown_votes;
    common_predicate = unknown_votes != 0;
    if (first.vote == VoteKind::kAll && no != 0) common_predicate = false;
    if (first.vote == VoteKind::kAny && yes != 0) common_predicate = false;
    if (first.vote == VoteKind::kUniform && yes != 0 && no != 0) common_predicate = false;
  } else if (op == Op::kMatch || op == Op::kReduce) {
    uint64_t all = 0, ones = 0, zeros = 0;  // bits that some lane has undefined, as 1, as 0
    ForLanes(lanes, [&](uint32_t lane) {
      all |= undefined[lane];
      ones |= values[lane] & ~undefined[lane];
      zeros |= ~values[lane] & ~undefined[lane];
    });
    common = all != 0 ? ~0ull : 0;
    common_predicate = all != 0;
    if (op == Op::kReduce) {
      if (first.reduce == ReduceKind::kXor) common = all;
      if (first.reduce == ReduceKind::kOr) common = all & ~ones;
      if (first.reduce == ReduceKind::kAnd) common = all & ~zeros;
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    Frame& frame = *splits[i]->frame;
    RegisterDefinedness& registers = Registers(frame);
    const WarpOperation& operation = operation_of(i);
    const uint32_t own = splits[i]->lanes;
    UndefinedLanes out;
    out.Clear();
    uint32_t predicate = 0;
    ReadOrigin predicate_origin = first_origin;
    ForLanes(own, [&](uint32_t lane) {
      uint64_t u = common;
      ReadOrigin origin = first_origin & ~kCarried;
      if (op == Op::kShuffle) {
        if (registers.BitsOf(operation.b, 2, lane) != 0 ||
            registers.BitsOf(operation.c, 2, lane) != 0) {
          u = ~0ull;
          const bool of_b = registers.BitsOf(operation.b, 2, lane) != 0;
          origin = registers.OriginOf(of_b ? operation.b : operation.c, lane) & ~kCarried;
          predicate |= 1u << lane;
          predicate_origin = origin;
        } else {
          bool in_range = false;
          const uint32_t source = SourceLane(
              operation.shuffle, lane, static_cast<uint32_t>(ValueOf(frame, operation.b, 2, lane)),
              static_cast<uint32_t>(ValueOf(frame, operation.c, 2, lane)), &in_range);
          u = undefined[source];
          origin = origins[source];
        }
      } else if (common_predicate) {
        predicate |= 1u << lane;
      }
      if (operation.d == kNoRef || u == 0) return;
      out.Put(2, lane, u & 0xffffffffu);
      out.origins[lane] = origin;
    });
    if (operation.d != kNoRef) registers.Set(operation.d, 2, out, own);
    if (operation.predicate != kNoRef)
      registers.SetPredicate(operation.predicate, predicate, predicate_origin, own);
  }
}

}  // namespace ops_debug::emulator
