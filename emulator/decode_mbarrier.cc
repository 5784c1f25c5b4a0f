// The mbarrier instructions (PTX ISA 9.0, 9.7.13.15). Lanes act one after the other, in order.
//
// A try_wait that is not satisfied sleeps, and the scheduler wakes it when its phase completes; a
// test_wait answers at once. Both first perform the asynchronous copies that complete on the
// mbarrier (pending_copies.h).
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "emulator/checks/async_order.h"
#include "emulator/checks/sync_check.h"
#include "emulator/decoder.h"
#include "emulator/lane_operand.h"
#include "emulator/mbarrier.h"
#include "emulator/mbarrier_place.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

LaunchChecks* ChecksOf(const Warp& warp) { return warp.block->launch->checks; }
AsyncOrder* AsyncOrderOf(const Warp& warp) {
  return ChecksOf(warp) == nullptr ? nullptr : ChecksOf(warp)->async();
}

// What the checks of barriers are told of an operation on an mbarrier.
template <class Call>
void TellSync(const Warp& warp, Call call) {
  LaunchChecks* const checks = ChecksOf(warp);
  if (checks == nullptr || checks->sync() == nullptr) return;
  const std::lock_guard lock(checks->mutex());
  call(*checks->sync());
}
void TellBefore(Warp& warp, uint32_t lane, MbarrierPlace place, SyncCheck::MbarrierUse use,
                const char* name) {
  TellSync(warp, [&](SyncCheck& sync) { sync.BeforeMbarrier(warp, lane, place, use, name); });
}
void TellAfter(const Warp& warp, MbarrierPlace place, SyncCheck::MbarrierUse use) {
  TellSync(warp, [&](SyncCheck& sync) { sync.AfterMbarrier(place, use); });
}
void TellFailure(Warp& warp, uint32_t lane, MbarrierPlace place, const char* name,
                 const std::string& problem) {
  TellSync(warp, [&](SyncCheck& sync) { sync.FailedMbarrier(warp, lane, place, name, problem); });
}

// init, inval, expect_tx, complete_tx, arrive and arrive_drop.
class Update : public ExtendedOperation {
 public:
  enum class Kind : uint8_t { kInitialise, kInvalidate, kExpect, kComplete, kArrive, kDrop };
  const char* name = "mbarrier.arrive";
  Kind kind = Kind::kArrive;
  AddressOperand address;
  Ref count = kNoRef;     // of arrivals or bytes
  Ref expected = kNoRef;  // bytes to expect before the arrival
  Ref state = kNoRef;     // receives what the object was before
  bool release = true;    // not .relaxed

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    const bool ok = ForEachLane(active, [&](uint32_t lane) {
      MbarrierPlace place;
      if (!FindMbarrier(machine, warp, frame, address, lane, &place)) return false;
      const bool arrives = kind == Kind::kArrive || kind == Kind::kDrop;
      const bool writes = kind == Kind::kInitialise;
      const auto use = kind == Kind::kInitialise   ? SyncCheck::MbarrierUse::kInitialise
                       : kind == Kind::kInvalidate ? SyncCheck::MbarrierUse::kInvalidate
                                                   : SyncCheck::MbarrierUse::kOther;
      TellBefore(warp, lane, place, use, name);
      AsyncOrder* const order = kind == Kind::kInvalidate ? nullptr : AsyncOrderOf(warp);
      if (order != nullptr) order->UpdateMbarrier(warp, lane, place, writes, arrives, release);
      const uint32_t parity = Mbarrier(place.word()).parity();
      const Mbarrier::Problem problem = Perform(frame, lane, place);
      if (problem.empty()) {
        TellAfter(warp, place, use);
        if (order != nullptr && !writes) order->SettleMbarrier(place, parity);
      }
      return problem.empty() || FailMbarrier(machine, warp, lane, name, place, problem);
    });
    return ok ? Step::kDone : Step::kFault;
  }

 private:
  Mbarrier::Problem Perform(Frame& frame, uint32_t lane, MbarrierPlace place) const {
    Mbarrier mbarrier(place.word());
    const uint32_t number = count == kNoRef ? 1 : LaneValue<uint32_t>(frame, count, lane);
    switch (kind) {
      case Kind::kInitialise:
        return mbarrier.Initialise(number);
      case Kind::kInvalidate:
        return mbarrier.Invalidate();
      case Kind::kExpect:
        return mbarrier.ExpectBytes(number);
      case Kind::kComplete:
        return mbarrier.CompleteBytes(number);
      default:
        break;
    }
    if (expected != kNoRef) {
      Mbarrier::Problem problem = mbarrier.ExpectBytes(LaneValue<uint32_t>(frame, expected, lane));
      if (!problem.empty()) return problem;
    }
    const uint64_t before = mbarrier.state();
    Mbarrier::Problem problem = mbarrier.Arrive(number, kind == Kind::kDrop);
    if (!problem.empty()) return problem;
    if (state != kNoRef) SetLaneValue<uint64_t>(frame, state, lane, before);
    return {};
  }
};

// test_wait and try_wait.
class Wait : public ExtendedOperation {
 public:
  AddressOperand address;
  Ref state = kNoRef;   // of an arrival in the phase to wait for, or
  Ref parity = kNoRef;  // of that phase
  bool suspends = false;
  bool acquire = true;  // not .relaxed

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    uint32_t complete = 0;
    const bool ok = ForEachLane(active, [&](uint32_t lane) {
      MbarrierPlace place;
      if (!FindMbarrier(machine, warp, frame, address, lane, &place)) return false;
      const char* const name = suspends ? "mbarrier.try_wait" : "mbarrier.test_wait";
      if (place.block != warp.block) {
        return machine.Fail(LaunchError::Code::kIllegalInstruction, warp, lane,
                            std::string(name) + " on " + NameMbarrier(warp, place) +
                                "; a thread can wait only on mbarriers of its own block");
      }
      TellBefore(warp, lane, place, SyncCheck::MbarrierUse::kOther, name);
      const std::string problem = machine.Copies(warp).CompleteFor(place);
      if (!problem.empty()) {
        TellFailure(warp, lane, place, name, problem);
        return machine.Fail(LaunchError::Code::kLaunchFailure, warp, lane, problem);
      }
      const Mbarrier mbarrier(place.word());
      if (!mbarrier.valid())
        return FailMbarrier(machine, warp, lane, name, place, mbarrier.Describe());
      if (mbarrier.parity() == Parity(frame, lane)) return true;
      complete |= 1u << lane;
      if (AsyncOrder* const order = AsyncOrderOf(warp))
        order->WaitedForMbarrier(warp, lane, place, acquire);
      return true;
    });
    if (!ok) return Step::kFault;
    if (complete != active) machine.MarkSynchronising();
    const bool timed_out = std::exchange(split.timed_out, false);
    if (suspends && complete == 0 && !timed_out) return Step::kWait;
    Machine::SetPredicate(frame, in.d, complete, active);
    return Step::kDone;
  }

  bool Ready(const Machine& /*machine*/, const Warp& warp, const Split& split) const override {
    const PendingCopies* const copies = warp.block->cluster->copies.get();
    return !ForEachLane(split.lanes, [&](uint32_t lane) {
      MbarrierPlace place;
      if (!PeekMbarrier(warp, *split.frame, address, lane, &place)) return false;
      const Mbarrier mbarrier(place.word());
      const bool waits = mbarrier.valid() && mbarrier.parity() == Parity(*split.frame, lane) &&
                         (copies == nullptr || !copies->HasFor(place));
      return waits;
    });
  }

  bool GivesUp() const override { return true; }

  std::string WaitsFor(const Machine& /*machine*/, const Warp& warp,
                       const Split& split) const override {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(split.lanes));
    MbarrierPlace place;
    if (!PeekMbarrier(warp, *split.frame, address, lane, &place)) return "an mbarrier";
    return std::string("the end of the current ") +
           (Parity(*split.frame, lane) == 0 ? "even" : "odd") + " phase of " +
           NameMbarrier(warp, place) + ", " + Mbarrier(place.word()).Describe();
  }

 private:
  uint32_t Parity(Frame& frame, uint32_t lane) const {
    return parity != kNoRef ? LaneValue<uint32_t>(frame, parity, lane) & 1
                            : Mbarrier::ParityOf(LaneValue<uint64_t>(frame, state, lane));
  }
};

class PendingCount : public ExtendedOperation {
 public:
  Step Execute(Machine& /*machine*/, Warp& /*warp*/, Split& split, const Instruction& in,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    ForEachLane(active, [&](uint32_t lane) {
      const auto state = LaneValue<uint64_t>(frame, in.a, lane);
      SetLaneValue<uint32_t>(frame, in.d, lane, Mbarrier::PendingOf(state));
      return true;
    });
    return Step::kDone;
  }
};

}  // namespace

bool PeekMbarrier(const Warp& warp, Frame& frame, const AddressOperand& address, uint32_t lane,
                  MbarrierPlace* place) {
  uint64_t offset = 0;
  Block* const block = Machine::SharedBlock(warp, address.space, address.Of(frame, lane), &offset);
  if (block == nullptr || offset % Mbarrier::kBytes != 0 ||
      offset + Mbarrier::kBytes > warp.block->launch->shared_limit_bytes)
    return false;
  *place = {block, static_cast<uint32_t>(offset)};
  return true;
}

bool FindMbarrier(Machine& machine, Warp& warp, Frame& frame, const AddressOperand& address,
                  uint32_t lane, MbarrierPlace* place) {
  if (PeekMbarrier(warp, frame, address, lane, place)) return true;
  return machine.FailAccess(warp, address.space, address.Of(frame, lane), lane, Mbarrier::kBytes);
}

std::string NameMbarrier(const Warp& warp, MbarrierPlace place) {
  std::string text = "the mbarrier at shared address " + Hex(place.offset);
  if (place.block != warp.block)
    text += " of the block of cluster rank " + std::to_string(place.block->cluster_rank);
  return text;
}

bool FailMbarrier(Machine& machine, Warp& warp, uint32_t lane, const char* instruction,
                  MbarrierPlace place, const std::string& problem) {
  TellFailure(warp, lane, place, instruction, problem);
  return machine.Fail(
      LaunchError::Code::kLaunchFailure, warp, lane,
      std::string(instruction) + " on " + NameMbarrier(warp, place) + ", " + problem);
}

bool Decoder::ReadAddressOperand(const ptx::Operand& operand, const ptx::Instruction& in,
                                 AddressOperand* address) {
  MemoryAccess access;
  access.space = Space::kGeneric;
  for (std::string_view modifier : in.modifiers) {
    if (modifier == ".shared" || modifier == ".shared::cta") access.space = Space::kShared;
    if (modifier == ".shared::cluster") access.space = Space::kSharedCluster;
    if (modifier == ".global") access.space = Space::kGlobal;
  }
  return ReadAddressIn(access.space, operand, address);
}

bool Decoder::ReadAddressIn(Space space, const ptx::Operand& operand, AddressOperand* address) {
  if (!operand.IsAddress() || operand.children.empty()) return false;
  MemoryAccess access;
  access.space = space;
  ptx::Operand first = operand;  // without the coordinates of a tensor address
  first.children = operand.children.subspan(0, 1);
  if (!ReadAddress(first, access, &address->base)) return false;
  address->space = access.space;
  address->is_32bit = access.address_is_32bit;
  address->offset = access.offset;
  return true;
}

bool Decoder::Mbarrier(const ptx::Instruction& in) {
  if (in.modifiers.empty()) return false;
  const std::string_view what = in.modifiers[0];
  const auto& operands = in.operands;
  if (what == ".pending_count") {
    if (operands.size() != 2) return false;
    const Ref state = Read(operands[1], Type::kB64);
    const Destination d = Write(operands[0], Type::kU32);
    EmitExtended(std::make_shared<PendingCount>());
    out_.code.back().a = state;
    out_.code.back().d = d.ref;
    Finish(d);
    return true;
  }
  if (what == ".test_wait" || what == ".try_wait") {
    if (operands.size() < 3 || operands.size() > 4) return false;
    auto wait = std::make_shared<Wait>();
    wait->suspends = what == ".try_wait";
    wait->acquire = !in.Has(".relaxed");
    if (!ReadAddressOperand(operands[1], in, &wait->address)) return false;
    if (in.Has(".parity")) {
      wait->parity = Read(operands[2], Type::kU32);
    } else {
      wait->state = Read(operands[2], Type::kB64);
    }
    const Ref d = WritePredicate(operands[0]);
    EmitExtended(std::move(wait));
    out_.code.back().d = d;
    return true;
  }
  struct Row {
    std::string_view modifier;
    const char* name;
    Update::Kind kind;
    size_t address;
  };
  constexpr Row kRows[] = {
      {".init", "mbarrier.init", Update::Kind::kInitialise, 0},
      {".inval", "mbarrier.inval", Update::Kind::kInvalidate, 0},
      {".expect_tx", "mbarrier.expect_tx", Update::Kind::kExpect, 0},
      {".complete_tx", "mbarrier.complete_tx", Update::Kind::kComplete, 0},
      {".arrive", "mbarrier.arrive", Update::Kind::kArrive, 1},
      {".arrive_drop", "mbarrier.arrive_drop", Update::Kind::kDrop, 1},
  };
  for (const Row& row : kRows) {
    if (row.modifier != what) continue;
    if (operands.size() <= row.address) return false;
    auto update = std::make_shared<Update>();
    update->name = row.name;
    update->kind = row.kind;
    update->release = !in.Has(".relaxed");
    if (!ReadAddressOperand(operands[row.address], in, &update->address)) return false;
    const bool expects = row.address == 1 && in.Has(".expect_tx");
    if (operands.size() > row.address + 1) {
      const Ref number = Read(operands[row.address + 1], Type::kU32);
      (expects ? update->expected : update->count) = number;
    } else if (row.kind != Update::Kind::kInvalidate && row.address == 0) {
      return false;
    }
    Destination d;
    if (row.address == 1 && operands[0].kind != Kind::kSink) {
      d = Write(operands[0], Type::kB64);
      update->state = d.ref;
    }
    EmitExtended(std::move(update));
    Finish(d);
    return true;
  }
  return false;
}

}  // namespace ops_debug::emulator
