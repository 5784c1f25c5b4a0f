// The inner loop: executes one split of a warp until it diverges, waits, ends or has run long
// enough.
//
// Arithmetic works on all 32 lanes; when only some execute, it goes to a scratch array first and a
// blend keeps the others. Lanes that do not exist any more may receive garbage, so the last warp of
// an odd-sized block and warps whose other lanes left early run at full speed.
#include <chrono>
#include <cstring>

#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// A loop that looks at memory which other threads change costs more of a split's credit, so that
// spinning threads soon let the others run, while long computations keep their convergence.
constexpr int64_t kSpinCost = 4096;
// What nanosleep adds to the clock of a chosen schedule.
constexpr uint64_t kNanosleepNs = 1000;

// Where a chosen schedule may interrupt a warp, besides backward jumps.
bool IsSchedulingPoint(Op op) {
  switch (op) {
    case Op::kLoadUniform:
    case Op::kLoad:
    case Op::kStore:
    case Op::kAtomic:
    case Op::kCopyAsync:
    case Op::kFence:
    case Op::kBarrier:
    case Op::kWarpSync:
    case Op::kExtended:
      return true;
    default:
      return false;
  }
}

bool IsMemoryAccess(Op op) { return op == Op::kLoad || op == Op::kStore || op == Op::kAtomic; }
// Where the second part of the reserved shared memory starts in it; cooperative groups keep the
// state of groups that span warps there.
constexpr uint32_t kReservedSharedPart1 = 64;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint32_t Combine(PredicateOp operation, uint32_t a, uint32_t b) {
  switch (operation) {
    case PredicateOp::kMove:
      return a;
    case PredicateOp::kNot:
      return ~a;
    case PredicateOp::kAnd:
      return a & b;
    case PredicateOp::kOr:
      return a | b;
    case PredicateOp::kXor:
      return a ^ b;
  }
  return 0;
}

}  // namespace

bool Machine::IsInSpace(uint64_t address, Space space) const {
  switch (space) {
    case Space::kShared:
      return InWindow(address, kSharedWindow);
    case Space::kLocal:
      return InWindow(address, kLocalWindow);
    case Space::kParameter:
      return InWindow(address, kParameterWindow);
    case Space::kConst:
      for (const auto& [name, symbol] : launch_.program->module_symbols) {
        if (symbol.is_const && address - symbol.value < symbol.size_bytes) return true;
      }
      return false;
    default:
      return address - kSharedWindow >= kWindowsEnd - kSharedWindow;
  }
}

void Machine::ReadSpecial(const Warp& warp, const Instruction& in, void* out) {
  const auto special = static_cast<Special>(in.extra);
  const Block& block = *warp.block;
  auto* lanes = static_cast<uint32_t*>(out);
  uint64_t uniform = 0;
  switch (special) {
    case Special::kTidX:
    case Special::kTidY:
    case Special::kTidZ:
      std::memcpy(out, warp.thread_index[in.extra - static_cast<uint8_t>(Special::kTidX)],
                  sizeof(warp.thread_index[0]));
      return;
    case Special::kLaneId:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = i;
      return;
    case Special::kLaneMaskEq:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = 1u << i;
      return;
    case Special::kLaneMaskLt:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = (1u << i) - 1;
      return;
    case Special::kLaneMaskLe:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = (1u << i) | ((1u << i) - 1);
      return;
    case Special::kLaneMaskGt:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = ~((1u << i) | ((1u << i) - 1));
      return;
    case Special::kLaneMaskGe:
      for (uint32_t i = 0; i < kWarpLanes; ++i) lanes[i] = ~((1u << i) - 1);
      return;
    case Special::kNtidX:
      uniform = launch_.block.x;
      break;
    case Special::kNtidY:
      uniform = launch_.block.y;
      break;
    case Special::kNtidZ:
      uniform = launch_.block.z;
      break;
    case Special::kCtaidX:
      uniform = block.index[0];
      break;
    case Special::kCtaidY:
      uniform = block.index[1];
      break;
    case Special::kCtaidZ:
      uniform = block.index[2];
      break;
    case Special::kNctaidX:
      uniform = launch_.grid.x;
      break;
    case Special::kNctaidY:
      uniform = launch_.grid.y;
      break;
    case Special::kNctaidZ:
      uniform = launch_.grid.z;
      break;
    case Special::kWarpId:
      uniform = warp.index;
      break;
    case Special::kWarpCount:
      uniform = 64;
      break;
    case Special::kSmId:
      uniform = block.number % launch_.model->multiprocessors;
      break;
    case Special::kSmCount:
      uniform = launch_.model->multiprocessors;
      break;
    case Special::kGridId:
      uniform = launch_.grid_id;
      break;
    case Special::kClock:
    case Special::kClock64:
    case Special::kGlobalTimer:
    case Special::kGlobalTimerLow:
      uniform = ReadClock();
      synchronising_ = true;
      break;
    case Special::kClockHigh:
    case Special::kGlobalTimerHigh:
      uniform = ReadClock() >> 32;
      break;
    case Special::kDynamicSharedBytes:
      uniform = launch_.dynamic_shared_bytes;
      break;
    case Special::kTotalSharedBytes:
      uniform = launch_.total_shared_bytes;
      break;
    case Special::kAggregateSharedBytes:
      uniform = (launch_.total_shared_bytes + 127u) / 128 * 128 + kReservedSharedBytes;
      break;
    case Special::kReservedSharedBegin:
      uniform = launch_.shared_limit_bytes - kReservedSharedBytes;
      break;
    case Special::kReservedShared1:
      uniform = launch_.shared_limit_bytes - kReservedSharedBytes + kReservedSharedPart1;
      break;
    case Special::kReservedSharedEnd:
      uniform = launch_.shared_limit_bytes;
      break;
    case Special::kGridWorkspaceHigh:
      uniform = launch_.grid_workspace >> 32;
      break;
    case Special::kGridWorkspaceLow:
      uniform = launch_.grid_workspace & 0xffffffffu;
      break;
    case Special::kZero:
      break;
    case Special::kOne:
      uniform = 1;
      break;
    case Special::kClusterIdX:
    case Special::kClusterIdY:
    case Special::kClusterIdZ:
      uniform = block.cluster->index[in.extra - static_cast<uint8_t>(Special::kClusterIdX)];
      break;
    case Special::kClusterCountX:
      uniform = launch_.grid.x / launch_.cluster.x;
      break;
    case Special::kClusterCountY:
      uniform = launch_.grid.y / launch_.cluster.y;
      break;
    case Special::kClusterCountZ:
      uniform = launch_.grid.z / launch_.cluster.z;
      break;
    case Special::kClusterCtaidX:
      uniform = block.cluster_rank % launch_.cluster.x;
      break;
    case Special::kClusterCtaidY:
      uniform = block.cluster_rank / launch_.cluster.x % launch_.cluster.y;
      break;
    case Special::kClusterCtaidZ:
      uniform = block.cluster_rank / launch_.cluster.x / launch_.cluster.y;
      break;
    case Special::kClusterNctaidX:
      uniform = launch_.cluster.x;
      break;
    case Special::kClusterNctaidY:
      uniform = launch_.cluster.y;
      break;
    case Special::kClusterNctaidZ:
      uniform = launch_.cluster.z;
      break;
    case Special::kClusterRank:
      uniform = block.cluster_rank;
      break;
    case Special::kClusterBlocks:
      uniform = launch_.cluster_blocks;
      break;
    case Special::kIsExplicitCluster:
      uniform = launch_.explicit_cluster ? 1 : 0;
      break;
  }
  lanes_.splat[in.width](out, uniform);
}

// Splats each element of `source` over its register.
void Machine::LoadUniform(const Instruction& in, Frame& frame, uint32_t active,
                          const std::byte* source) {
  const MemoryAccess& access = *in.fn.access;
  const uint32_t element_bytes = 1u << access.element_shift;
  for (uint32_t k = 0; k < access.count; ++k) {
    if (access.registers[k] == kNoRef) continue;
    uint64_t value = 0;
    std::memcpy(&value, source + k * element_bytes, element_bytes);
    if (access.sign_extend && access.element_shift < 3) {
      const uint32_t unused = 64 - 8 * element_bytes;
      value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    }
    std::byte* d = At(frame, access.registers[k]);
    if (active == kAllLanes) {
      lanes_.splat[access.register_shift](d, value);
    } else {
      lanes_.splat[access.register_shift](scratch_.data(), value);
      lanes_.blend[access.register_shift](d, scratch_.data(), active);
    }
  }
}

void Machine::LoadParameter(const Instruction& in, Frame& frame, uint32_t active) {
  const uint64_t bytes = in.fn.access->access_bytes();
  const uint64_t offset = in.immediate;
  alignas(16) std::byte nothing[64] = {};
  const bool inside =
      bytes <= launch_.parameters.size() && offset <= launch_.parameters.size() - bytes;
  LoadUniform(in, frame, active, inside ? launch_.parameters.data() + offset : nothing);
}

bool Machine::SplitByTable(Warp& warp, Split& split, const Instruction& in, uint32_t active) {
  const BranchTargets& table = *in.fn.table;
  const auto* index = reinterpret_cast<const uint32_t*>(At(*split.frame, table.index));
  KeepLanes(warp, split, active, split.pc);
  uint32_t rest = active;
  while (rest != 0) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    uint32_t same = 0;
    for (uint32_t m = rest; m != 0; m &= m - 1) {
      const auto other = static_cast<uint32_t>(__builtin_ctz(m));
      if (index[other] == index[lane]) same |= 1u << other;
    }
    if (index[lane] >= table.targets.size()) {
      return Fail(LaunchError::Code::kInvalidProgramCounter, warp, lane,
                  "branch index " + std::to_string(index[lane]) + " into a table of " +
                      std::to_string(table.targets.size()));
    }
    rest &= ~same;
    if (rest == 0) {
      split.pc = table.targets[index[lane]];
      split.lanes = same;
    } else {
      AddSplit(warp, split, same, table.targets[index[lane]]);
    }
  }
  return true;
}

uint64_t Machine::ReadClock() {
  reads_clock_ = true;
  if (schedule_ == nullptr) return NowNs();
  virtual_ns_ += clock_step_ns_;
  return virtual_ns_;
}

template <bool kObserved>
Machine::Stop Machine::Execute(Warp& warp, Split& split) {
restart:
  Frame& frame = *split.frame;
  const Instruction* const code = frame.function->code.data();
  std::byte* const registers = frame.registers.data();
  std::byte* const bases[2] = {registers, const_cast<std::byte*>(frame.function->constant_base)};
  const auto at = [&bases](Ref ref) { return bases[ref >> 31] + (ref & ~kConstantBit); };
  const uint32_t lanes = split.lanes;
  const uint32_t gone = warp.gone();
  const auto lane_count = static_cast<uint64_t>(__builtin_popcount(lanes));
  const uint32_t meeting = NextMeeting(warp, split);
  uint32_t pc = split.pc;
  uint32_t run_start = code[pc].ordinal;
  // Counts the instructions of the straight run that ends with `in`.
  const auto retire = [&](const Instruction& in) {
    warp.instructions += (in.ordinal + in.counted - run_start) * lane_count;
  };
  const auto leave_before = [&](uint32_t next) {
    warp.instructions += (code[next].ordinal - run_start) * lane_count;
    split.pc = next;
  };

  for (;;) {
    if (pc >= meeting) [[unlikely]] {
      leave_before(pc);
      return Stop::kReschedule;
    }
    const Instruction& in = code[pc];
    uint32_t active = lanes;
    if (in.guard != kNoRef) {
      if constexpr (kObserved) {
        if (launch_.checks != nullptr && launch_.checks->wants_instructions())
          launch_.checks->BeforeGuard(warp, split, in, lanes);
      }
      active &= *reinterpret_cast<const uint32_t*>(registers + in.guard) ^ in.guard_flip;
      if (active == 0) {
        ++pc;
        continue;
      }
    }
    if constexpr (kObserved) {
      if (IsSchedulingPoint(in.op)) {
        if (--slice_ < 0) {
          leave_before(pc);
          return Stop::kPreempted;
        }
        if (schedule_ != nullptr && lanes_may_part_ && (active & (active - 1)) != 0 &&
            IsMemoryAccess(in.op) && schedule_->random.Chance(schedule_->split_chance)) {
          leave_before(pc);
          const uint32_t first = ChooseLanes(lanes);
          if (first != lanes) {
            AddSplit(warp, split, lanes & ~first, pc);
            split.lanes = first;
            goto restart;
          }
        }
      }
      if (launch_.checks != nullptr && launch_.checks->wants_instructions()) [[unlikely]] {
        split.pc = pc;
        launch_.checks->BeforeInstruction(warp, split, in, active);
      }
    }
    switch (in.op) {
      case Op::kAlu:
        if ((active | gone) == kAllLanes) [[likely]] {
          in.fn.alu(at(in.d), at(in.a), at(in.b), at(in.c), in.immediate);
        } else {
          in.fn.alu(scratch_.data(), at(in.a), at(in.b), at(in.c), in.immediate);
          lanes_.blend[in.width](at(in.d), scratch_.data(), active);
        }
        ++pc;
        continue;
      case Op::kCompare:
        SetPredicate(frame, in.d, in.fn.compare(at(in.a), at(in.b)), active);
        ++pc;
        continue;
      case Op::kCompareCombine: {
        const uint32_t relation = PredicateAt(frame, in.a);
        const uint32_t source = PredicateAt(frame, in.c);
        const auto operation = static_cast<PredicateOp>(in.extra);
        SetPredicate(frame, in.d, Combine(operation, relation, source), active);
        if (in.q != kNoRef)
          SetPredicate(frame, in.q, Combine(operation, ~relation, source), active);
        ++pc;
        continue;
      }
      case Op::kPredicate:
        SetPredicate(frame, in.d,
                     Combine(static_cast<PredicateOp>(in.extra), PredicateAt(frame, in.a),
                             PredicateAt(frame, in.b)),
                     active);
        ++pc;
        continue;
      case Op::kSelect: {
        const uint32_t chosen = PredicateAt(frame, in.c);
        if ((active | gone) == kAllLanes) {
          lanes_.select[in.width](at(in.d), at(in.a), at(in.b), chosen);
        } else {
          lanes_.select[in.width](scratch_.data(), at(in.a), at(in.b), chosen);
          lanes_.blend[in.width](at(in.d), scratch_.data(), active);
        }
        ++pc;
        continue;
      }
      case Op::kCarry: {
        const uint32_t carry_in = (in.extra & 1) != 0 ? PredicateAt(frame, in.q) : 0;
        const uint32_t carry_out = in.fn.carry(scratch_.data(), at(in.a), at(in.b),
                                               in.c == kNoRef ? nullptr : at(in.c), carry_in);
        lanes_.blend[in.width](at(in.d), scratch_.data(), active);
        if ((in.extra & 2) != 0) SetPredicate(frame, in.q, carry_out, active);
        ++pc;
        continue;
      }
      case Op::kSpecial:
        ReadSpecial(warp, in, scratch_.data());
        lanes_.blend[in.width](at(in.d), scratch_.data(), active);
        ++pc;
        continue;
      case Op::kSharedSymbol:
      case Op::kLocalSymbol: {
        const uint64_t value = in.op == Op::kLocalSymbol
                                   ? frame.local_base + in.immediate
                                   : launch_.kernel->shared_offsets[in.immediate] +
                                         static_cast<uint64_t>(static_cast<int32_t>(in.a));
        lanes_.splat[in.width](scratch_.data(), value);
        lanes_.blend[in.width](at(in.d), scratch_.data(), active);
        ++pc;
        continue;
      }
      case Op::kIsSpace: {
        const auto* address = reinterpret_cast<const uint64_t*>(at(in.a));
        uint32_t inside = 0;
        for (uint32_t i = 0; i < kWarpLanes; ++i) {
          inside |= static_cast<uint32_t>(IsInSpace(address[i], static_cast<Space>(in.extra))) << i;
        }
        SetPredicate(frame, in.d, inside, active);
        ++pc;
        continue;
      }
      case Op::kLoadParameter:
        LoadParameter(in, frame, active | gone);
        ++pc;
        continue;
      case Op::kLoadUniform:
        if constexpr (kObserved) {
          LoadUniformObserved(warp, frame, in, active);
        } else {
          LoadUniform(in, frame, active | gone, reinterpret_cast<const std::byte*>(in.immediate));
        }
        ++pc;
        continue;
      case Op::kLoadFrame:
        LoadFrame(warp, frame, in, active);
        ++pc;
        continue;
      case Op::kStoreFrame:
        StoreFrame(warp, frame, in, active);
        ++pc;
        continue;
      case Op::kLoad:
        if (!(kObserved ? LoadObserved(warp, frame, in, active) : Load(warp, frame, in, active)))
          goto fault;
        ++pc;
        continue;
      case Op::kStore:
        if (!(kObserved ? StoreObserved(warp, frame, in, active) : Store(warp, frame, in, active)))
          goto fault;
        ++pc;
        continue;
      case Op::kAtomic:
        if (!(kObserved ? AtomicObserved(warp, frame, in, active)
                        : Atomic(warp, frame, in, active)))
          goto fault;
        ++pc;
        continue;
      case Op::kCopyAsync:
        if constexpr (kObserved) {
          if (weak_ != nullptr) weak_->Synchronise(warp, active);
        }
        if (!CopyAsync(warp, frame, in, active)) goto fault;
        ++pc;
        continue;
      case Op::kNop:
        if constexpr (kObserved) {
          if (LaunchChecks* const checks = in.extra != 0 ? ChecksOf(frame, in) : nullptr) {
            if (in.extra == kWaitForGrid) {
              checks->WaitForGrid(warp, active);
            } else {
              checks->LaunchDependents(warp, active);
            }
          }
        }
        ++pc;
        continue;
      case Op::kFence:
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if constexpr (kObserved) {
          if (weak_ != nullptr) {
            weak_->Release(warp, active, in.extra == kFenceOfBlock);
            weak_->Acquire(warp, active);
          }
          if (LaunchChecks* const checks = ChecksOf(frame, in))
            checks->Fence(warp, active, FenceUse::Unpack(in.immediate));
        }
        ++pc;
        continue;
      case Op::kActiveMask:
        lanes_.splat[2](scratch_.data(), active);
        lanes_.blend[2](at(in.d), scratch_.data(), active);
        ++pc;
        continue;

      case Op::kBranch:
      case Op::kJump: {
        if (active != lanes) {
          // Divergence. Go on with whoever is behind; the others wait at the later place.
          retire(in);
          const uint32_t others = lanes & ~active;
          const bool taken_first = in.target < pc + 1;
          AddSplit(warp, split, taken_first ? others : active, taken_first ? pc + 1 : in.target);
          split.lanes = taken_first ? active : others;
          split.pc = taken_first ? in.target : pc + 1;
          if (in.target > pc) goto restart;
        } else {
          retire(in);
          pc = in.target;
          run_start = code[pc].ordinal;
          if (&code[pc] > &in) continue;
          split.pc = pc;
        }
        // A backward jump: the place to give way.
        credit_ -= synchronising_ ? kSpinCost : 1;
        spinning_ = synchronising_;
        synchronising_ = false;
        if (credit_ <= 0) return Stop::kYield;
        if constexpr (kObserved) {
          if (--slice_ < 0) return Stop::kPreempted;
        }
        if (split.lanes != lanes) goto restart;
        continue;
      }
      case Op::kNanosleep:
        retire(in);
        split.pc = pc + 1;
        virtual_ns_ += kNanosleepNs;
        credit_ = 0;
        spinning_ = true;
        return Stop::kYield;
      case Op::kBranchTable:
        retire(in);
        split.pc = pc;
        if (!SplitByTable(warp, split, in, active)) goto fault_retired;
        if (--credit_ <= 0) return Stop::kYield;
        return Stop::kReschedule;
      case Op::kCall:
      case Op::kCallIndirect:
        leave_before(pc);
        KeepLanes(warp, split, active, pc);
        if (!Call(warp, split, in)) goto fault_retired;
        return Stop::kReschedule;
      case Op::kReturn:
        retire(in);
        split.pc = pc;
        KeepLanes(warp, split, active, pc);
        Return(warp, split);
        return Stop::kReschedule;
      case Op::kExit:
        retire(in);
        split.pc = pc + 1;
        if constexpr (kObserved) {
          if (weak_ != nullptr) weak_->Release(warp, active, true);
        }
        Exit(warp, split, active);
        return Stop::kReschedule;
      case Op::kBarrier:
        leave_before(pc);
        KeepLanes(warp, split, active, pc);
        warp.instructions += static_cast<uint64_t>(__builtin_popcount(active)) * in.counted;
        if constexpr (kObserved) {
          if (weak_ != nullptr) weak_->Release(warp, active, true);
        }
        if (!ArriveAtBarrier(warp, split, in)) goto fault_retired;
        if (split.state != Split::State::kReady || active != lanes) return Stop::kReschedule;
        goto restart;
      case Op::kWarpSync:
      case Op::kShuffle:
      case Op::kVote:
      case Op::kMatch:
      case Op::kReduce:
      case Op::kElect:
        leave_before(pc);
        KeepLanes(warp, split, active, pc);
        warp.instructions += static_cast<uint64_t>(__builtin_popcount(active)) * in.counted;
        if constexpr (kObserved) {
          if (weak_ != nullptr && in.op == Op::kWarpSync) weak_->Release(warp, active, true);
        }
        if (!WarpOperate(warp, split, in) || active != lanes) return Stop::kReschedule;
        pc = split.pc;
        run_start = code[pc].ordinal;
        continue;
      case Op::kExtended:
        split.pc = pc;
        if constexpr (kObserved) {
          if (weak_ != nullptr && in.fn.extended->AccessesMemory())
            weak_->Synchronise(warp, active);
        }
        switch (in.fn.extended->Execute(*this, warp, split, in, active)) {
          case ExtendedOperation::Step::kDone:
            if constexpr (kObserved) {
              if (weak_ != nullptr && in.fn.extended->AccessesMemory())
                weak_->Acquire(warp, active);
            }
            ++pc;
            continue;
          case ExtendedOperation::Step::kFault:
            goto fault;
          case ExtendedOperation::Step::kWait:
            leave_before(pc);
            KeepLanes(warp, split, active, pc);
            split.state = Split::State::kWaiting;
            return Stop::kReschedule;
        }
        continue;
      case Op::kTrap:
        Fail(LaunchError::Code::kTrap, warp, static_cast<uint32_t>(__builtin_ctz(active)),
             "trap executed");
        goto fault;
      case Op::kUnsupported:
        Fail(LaunchError::Code::kUnsupportedInstruction, warp,
             static_cast<uint32_t>(__builtin_ctz(active)),
             "the CPU device does not support this instruction yet");
        goto fault;
    }
    continue;
  fault:
    leave_before(pc);
  fault_retired:
    fault_.function = frame.function;
    fault_.statement = in.statement;
    return Stop::kFault;
  }
}

template Machine::Stop Machine::Execute<false>(Warp& warp, Split& split);
template Machine::Stop Machine::Execute<true>(Warp& warp, Split& split);

}  // namespace ops_debug::emulator
