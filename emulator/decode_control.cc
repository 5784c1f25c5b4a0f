// Decoding of branches, calls, barriers and the operations between the lanes of a warp.
#include <string>

#include "emulator/checks/launch_checks.h"
#include "emulator/decoder.h"
#include "emulator/extended_operation.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

// barrier.cluster.arrive
class ClusterArrive : public ExtendedOperation {
 public:
  explicit ClusterArrive(bool release) : release_(release) {}
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    if (LaunchChecks* const checks = machine.ChecksOf(*split.frame, in))
      checks->ArriveAtClusterBarrier(warp, active, release_);
    machine.ArriveAtClusterBarrier(warp, active);
    return Step::kDone;
  }

 private:
  bool release_;  // not .relaxed
};

// barrier.cluster.wait
class ClusterWait : public ExtendedOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    if ((warp.block->cluster->ArrivedLanes(warp) & active) != 0) return Step::kWait;
    if (LaunchChecks* const checks = machine.ChecksOf(*split.frame, in))
      checks->LeaveClusterBarrier(warp, active, true);
    return Step::kDone;
  }
  bool Ready(const Machine& /*machine*/, const Warp& warp, const Split& split) const override {
    return (warp.block->cluster->ArrivedLanes(warp) & split.lanes) == 0;
  }
  std::string WaitsFor(const Machine& /*machine*/, const Warp& warp,
                       const Split& /*split*/) const override {
    Cluster& cluster = *warp.block->cluster;
    uint32_t arrived = 0, threads = 0;
    for (const Block* block : cluster.blocks) {
      for (const auto& other : block->warps) {
        arrived += static_cast<uint32_t>(__builtin_popcount(cluster.ArrivedLanes(*other)));
        threads += static_cast<uint32_t>(__builtin_popcount(~other->gone()));
      }
    }
    return "the barrier of the cluster, at which " + std::to_string(arrived) + " of " +
           std::to_string(threads) + " threads have arrived";
  }
};

}  // namespace

bool Decoder::Branch(const ptx::Instruction& in) {
  if (in.operands.size() != 1 || in.operands[0].kind != Kind::kSymbol) return false;
  Emit(Op::kBranch);
  label_uses_.push_back(
      {static_cast<uint32_t>(out_.code.size() - 1), scope_, in.operands[0].text, false});
  return true;
}

bool Decoder::BranchIndexed(const ptx::Instruction& in) {
  if (in.operands.size() != 2 || in.operands[1].kind != Kind::kSymbol) return false;
  const Ref index = Read(in.operands[0], Type::kU32);
  Emit(Op::kBranchTable).a = index;
  label_uses_.push_back(
      {static_cast<uint32_t>(out_.code.size() - 1), scope_, in.operands[1].text, true});
  return true;
}

// Registers and immediates among the operands travel as slots of their own; .param arrays as bytes
// of the frame.
bool Decoder::ReadSlots(const ptx::Operand& list, bool results, std::vector<Slot>& out) {
  if (list.kind != Kind::kList) return false;
  for (const ptx::Operand& operand : list.children) {
    Slot slot;
    switch (operand.kind) {
      case Kind::kSymbol: {
        const Symbol symbol = FindSymbol(operand.text);
        if (symbol.kind != Symbol::Kind::kLocal) return false;
        slot.offset = static_cast<uint32_t>(symbol.value);
        slot.bytes = static_cast<uint32_t>(symbol.size_bytes);
        break;
      }
      case Kind::kRegister:
        if (IsPredicate(operand.reg)) return false;
        slot.is_register = true;
        slot.ref = RegisterRef(operand.reg);
        slot.width = RegisterShift(operand.reg);
        break;
      case Kind::kImmediate:
        if (results) return false;
        slot.is_register = true;
        slot.width = operand.is_integer ? 3 : 2;
        slot.ref = Read(operand, operand.is_integer ? Type::kB64 : Type::kF32);
        break;
      default:
        return false;
    }
    out.push_back(slot);
  }
  return true;
}

bool Decoder::Call(const ptx::Instruction& in) {
  size_t next = 0;
  CallSite site;
  const auto& operands = in.operands;
  if (next < operands.size() && operands[next].kind == Kind::kList) {
    if (!ReadSlots(operands[next++], true, site.results)) return false;
  }
  if (next >= operands.size()) return false;
  const ptx::Operand& callee = operands[next++];
  if (next < operands.size() && operands[next].kind == Kind::kList) {
    if (!ReadSlots(operands[next++], false, site.arguments)) return false;
  }
  bool indirect = true;
  if (callee.kind == Kind::kSymbol) {
    const Symbol symbol = FindSymbol(callee.text);
    if (symbol.kind != Symbol::Kind::kFunction) return false;
    site.function = static_cast<int32_t>(symbol.value);
    indirect = false;
  } else {
    site.address = Read(callee, Type::kU64);
  }
  auto* owned = Own(out_.calls);
  *owned = std::move(site);
  Instruction& out = Emit(indirect ? Op::kCallIndirect : Op::kCall);
  out.fn.call = owned;
  return true;
}

bool Decoder::Return(const ptx::Instruction&) {
  GiveBackStack();
  Emit(source_.is_entry ? Op::kExit : Op::kReturn);
  return true;
}
bool Decoder::Exit(const ptx::Instruction&) {
  Emit(Op::kExit);
  return true;
}
bool Decoder::Trap(const ptx::Instruction&) {
  Emit(Op::kTrap);
  return true;
}

bool Decoder::Barrier(const ptx::Instruction& in) {
  if (in.Has(".cluster")) {
    if (!in.operands.empty()) return false;
    if (in.Has(".arrive")) {
      EmitExtended(std::make_shared<ClusterArrive>(!in.Has(".relaxed")));
    } else if (in.Has(".wait")) {
      EmitExtended(std::make_shared<ClusterWait>());
    } else {
      return false;
    }
    return true;
  }
  if (in.Has(".warp")) {
    if (in.operands.size() != 1) return false;
    auto* operation = Own(out_.warp_operations);
    operation->members = Read(in.operands[0], Type::kB32);
    Emit(Op::kWarpSync).fn.warp = operation;
    return true;
  }
  BarrierUse use;
  use.aligned = in.opcode == "bar" || in.Has(".aligned");
  const auto& operands = in.operands;
  size_t next = 0;
  if (in.Has(".red")) {
    if (operands.size() < 3) return false;
    use.kind = in.Has(".popc")  ? BarrierKind::kReducePopc
               : in.Has(".and") ? BarrierKind::kReduceAnd
                                : BarrierKind::kReduceOr;
    next = 1;
  } else if (in.Has(".arrive")) {
    use.kind = BarrierKind::kArrive;
  } else if (!in.Has(".sync")) {
    return false;
  }
  if (next >= operands.size()) return false;
  use.id = Read(operands[next++], Type::kU32);
  const bool reduces = in.Has(".red");
  const size_t rest = operands.size() - next - (reduces ? 1 : 0);
  if (rest > 1) return false;
  if (rest == 1) use.threads = Read(operands[next++], Type::kU32);
  Ref d = kNoRef;
  Destination popc;
  if (reduces) {
    use.predicate = ReadPredicate(operands[next]);
    if (use.kind == BarrierKind::kReducePopc) {
      popc = Write(operands[0], Type::kU32);
      d = popc.ref;
    } else {
      d = WritePredicate(operands[0]);
    }
  }
  auto* owned = Own(out_.barriers);
  *owned = use;
  Instruction& out = Emit(Op::kBarrier);
  out.fn.barrier = owned;
  out.d = d;
  Finish(popc);
  return true;
}

bool Decoder::Shuffle(const ptx::Instruction& in) {
  const bool sync = in.Has(".sync");
  if (in.operands.size() != (sync ? 5u : 4u)) return false;
  WarpOperation operation;
  operation.shuffle = in.Has(".up")     ? ShuffleKind::kUp
                      : in.Has(".down") ? ShuffleKind::kDown
                      : in.Has(".bfly") ? ShuffleKind::kButterfly
                                        : ShuffleKind::kIndex;
  operation.a = Read(in.operands[1], Type::kB32);
  operation.b = Read(in.operands[2], Type::kB32);
  operation.c = Read(in.operands[3], Type::kB32);
  if (sync) operation.members = Read(in.operands[4], Type::kB32);
  const ptx::Operand& result = in.operands[0];
  const bool pair = result.kind == Kind::kPair;
  const Destination d = Write(pair ? result.children[0] : result, Type::kB32);
  operation.d = d.ref;
  if (pair) operation.predicate = WritePredicate(result.children[1]);
  auto* owned = Own(out_.warp_operations);
  *owned = operation;
  Emit(Op::kShuffle).fn.warp = owned;
  Finish(d);
  return true;
}

bool Decoder::Vote(const ptx::Instruction& in) {
  const bool sync = in.Has(".sync");
  if (in.operands.size() != (sync ? 3u : 2u)) return false;
  WarpOperation operation;
  operation.a = ReadPredicate(in.operands[1]);
  if (sync) operation.members = Read(in.operands[2], Type::kB32);
  Destination d;
  if (in.Has(".ballot")) {
    operation.vote = VoteKind::kBallot;
    d = Write(in.operands[0], Type::kB32);
    operation.d = d.ref;
  } else {
    operation.vote = in.Has(".all")   ? VoteKind::kAll
                     : in.Has(".any") ? VoteKind::kAny
                                      : VoteKind::kUniform;
    operation.predicate = WritePredicate(in.operands[0]);
  }
  auto* owned = Own(out_.warp_operations);
  *owned = operation;
  Emit(Op::kVote).fn.warp = owned;
  Finish(d);
  return true;
}

bool Decoder::Match(const ptx::Instruction& in) {
  if (in.operands.size() != 3) return false;
  const Type type = LastType(in);
  WarpOperation operation;
  operation.all = in.Has(".all");
  operation.width = ShiftOf(type);
  operation.a = Read(in.operands[1], type);
  operation.members = Read(in.operands[2], Type::kB32);
  const ptx::Operand& result = in.operands[0];
  const bool pair = result.kind == Kind::kPair;
  const Destination d = Write(pair ? result.children[0] : result, Type::kB32);
  operation.d = d.ref;
  if (pair) operation.predicate = WritePredicate(result.children[1]);
  auto* owned = Own(out_.warp_operations);
  *owned = operation;
  Emit(Op::kMatch).fn.warp = owned;
  Finish(d);
  return true;
}

bool Decoder::Redux(const ptx::Instruction& in) {
  const Type type = LastType(in);
  if (in.operands.size() != 3 || !IsInteger(type)) return false;
  WarpOperation operation;
  operation.a = Read(in.operands[1], Type::kB32);
  operation.members = Read(in.operands[2], Type::kB32);
  operation.is_signed = IsSigned(type);
  struct Row {
    std::string_view name;
    ReduceKind kind;
  };
  bool found = false;
  for (const Row& row : {Row{".add", ReduceKind::kAdd}, Row{".min", ReduceKind::kMin},
                         Row{".max", ReduceKind::kMax}, Row{".and", ReduceKind::kAnd},
                         Row{".or", ReduceKind::kOr}, Row{".xor", ReduceKind::kXor}}) {
    if (!in.Has(row.name)) continue;
    operation.reduce = row.kind;
    found = true;
  }
  if (!found) return false;
  const Destination d = Write(in.operands[0], Type::kB32);
  operation.d = d.ref;
  auto* owned = Own(out_.warp_operations);
  *owned = operation;
  Emit(Op::kReduce).fn.warp = owned;
  Finish(d);
  return true;
}

bool Decoder::ActiveMask(const ptx::Instruction& in) {
  if (in.operands.size() != 1) return false;
  const Destination d = Write(in.operands[0], Type::kB32);
  Emit(Op::kActiveMask).d = d.ref;
  Finish(d);
  return true;
}

bool Decoder::Elect(const ptx::Instruction& in) {
  if (in.operands.size() != 2 || in.operands[0].kind != Kind::kPair) return false;
  WarpOperation operation;
  operation.members = Read(in.operands[1], Type::kB32);
  const Destination d = Write(in.operands[0].children[0], Type::kB32);
  operation.d = d.ref;
  operation.predicate = WritePredicate(in.operands[0].children[1]);
  auto* owned = Own(out_.warp_operations);
  *owned = operation;
  Emit(Op::kElect).fn.warp = owned;
  Finish(d);
  return true;
}

bool Decoder::Fence(const ptx::Instruction& in) {
  // The scope comes last: membar.cta, fence.acq_rel.cta. Fences of proxies order for everybody.
  const bool of_block = in.Has(".cta") && !in.Has(".proxy");
  FenceUse use;
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".cta") use.scope = MemoryScope::kBlock;
    if (modifier == ".cluster") use.scope = MemoryScope::kCluster;
    if (modifier == ".gl" || modifier == ".gpu") use.scope = MemoryScope::kDevice;
    if (modifier == ".acq_rel") use.order = FenceOrder::kAcquireRelease;
    if (modifier == ".acquire") use.order = FenceOrder::kAcquire;
    if (modifier == ".release") use.order = FenceOrder::kRelease;
    if (modifier == ".proxy") use.proxy = FenceProxy::kOther;
    if (modifier.starts_with(".proxy::")) use.proxy = FenceProxy::kOther;
    if (modifier == ".mbarrier_init") use.proxy = FenceProxy::kMbarrierInit;
  }
  const bool of_async = in.Has(".async") || in.Has(".async::generic");
  if (use.proxy == FenceProxy::kOther && of_async) use.proxy = FenceProxy::kAsync;
  Instruction& out = Emit(Op::kFence);
  out.extra = of_block ? kFenceOfBlock : kFenceOfDevice;
  out.immediate = use.Pack();
  return true;
}
bool Decoder::GridDependency(const ptx::Instruction& in) {
  Emit(Op::kNop).extra = in.Has(".wait") ? kWaitForGrid : kLaunchDependents;
  return true;
}
bool Decoder::Nanosleep(const ptx::Instruction&) {
  Emit(Op::kNanosleep);
  return true;
}
// Hints that change no result.
bool Decoder::Nothing(const ptx::Instruction&) { return true; }

bool Decoder::CreatePolicy(const ptx::Instruction& in) {
  if (in.operands.empty()) return false;
  const Destination d = Write(in.operands[0], Type::kB64);
  EmitAlu("mov.b64", 3, d.ref, Constant(3, 0));
  Finish(d);
  return true;
}

}  // namespace ops_debug::emulator
