// Decoding and starting of asynchronous copies (PTX ISA 9.0, 9.7.9.25): cp.async and its groups,
// cp.async.bulk, cp.reduce.async.bulk, st.async and red.async. Tensor copies are in
// decode_tensor.cc.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "emulator/async_range.h"
#include "emulator/bulk_copy.h"
#include "emulator/checks/async_order.h"
#include "emulator/checks/sync_check.h"
#include "emulator/decoder.h"
#include "emulator/lane_operand.h"
#include "emulator/mbarrier.h"
#include "emulator/mbarrier_place.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

constexpr uint32_t kBulkUnitBytes = 16;  // alignment and granule of bulk copies

// Commits and waits of both kinds of groups.
class Group : public ExtendedOperation {
 public:
  enum class Kind : uint8_t { kCommit, kWait, kWaitAll, kCommitBulk, kWaitBulk, kWaitBulkRead };
  Group(Kind kind, uint32_t groups) : kind_(kind), groups_(groups) {}
  Step Execute(Machine& machine, Warp& warp, Split& /*split*/, const Instruction& /*in*/,
               uint32_t active) const override {
    PendingCopies& copies = machine.Copies(warp);
    switch (kind_) {
      case Kind::kCommit:
        copies.CommitGroup(warp, active);
        break;
      case Kind::kWait:
        copies.WaitForGroups(warp, active, groups_);
        break;
      case Kind::kWaitAll:
        copies.WaitForAll(warp, active);
        break;
      case Kind::kCommitBulk:
        copies.CommitBulkGroup(warp, active);
        break;
      case Kind::kWaitBulk:
      case Kind::kWaitBulkRead:
        copies.WaitForBulkGroups(warp, active, groups_, kind_ == Kind::kWaitBulkRead);
        break;
    }
    return Step::kDone;
  }

 private:
  Kind kind_;
  uint32_t groups_;
};

// cp.async.mbarrier.arrive
class ArriveAfterCopies : public ExtendedOperation {
 public:
  AddressOperand address;
  bool increments = true;  // without .noinc the arrival is not one of those that init announced

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    const bool ok = ForEachLane(active, [&](uint32_t lane) {
      MbarrierPlace place;
      if (!FindMbarrier(machine, warp, *split.frame, address, lane, &place)) return false;
      emulator::Mbarrier mbarrier(place.word());
      LaunchChecks* const checks = machine.launch().checks;
      if (checks != nullptr && checks->sync() != nullptr) {
        const std::lock_guard lock(checks->mutex());
        checks->sync()->BeforeMbarrier(warp, lane, place, SyncCheck::MbarrierUse::kOther,
                                       "cp.async.mbarrier.arrive");
      }
      if (checks != nullptr && checks->async() != nullptr)
        checks->async()->UpdateMbarrier(warp, lane, place, false, false, false);
      const std::string problem = mbarrier.AddPending(increments ? 1 : 0);
      if (!problem.empty())
        return FailMbarrier(machine, warp, lane, "cp.async.mbarrier.arrive", place, problem);
      if (checks != nullptr && checks->sync() != nullptr) {
        const std::lock_guard lock(checks->mutex());
        checks->sync()->AfterMbarrier(place, SyncCheck::MbarrierUse::kOther);
      }
      machine.Copies(warp).ArriveLater(warp, lane, place);
      return true;
    });
    return ok ? Step::kDone : Step::kFault;
  }
};

// cp.async.bulk and cp.reduce.async.bulk.
class BulkCopy : public ExtendedOperation {
 public:
  const char* name = "cp.async.bulk";
  AddressOperand target, source, mbarrier;  // mbarrier absent: bulk group
  Ref bytes = kNoRef;
  Ref cta_mask = kNoRef;  // .multicast::cluster, 32-bit lanes
  std::optional<Reduction> reduction;

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    const bool ok = ForEachLane(
        active, [&](uint32_t lane) { return StartLane(machine, warp, *split.frame, lane); });
    return ok ? Step::kDone : Step::kFault;
  }

 private:
  bool StartLane(Machine& machine, Warp& warp, Frame& frame, uint32_t lane) const {
    const auto size = LaneValue<uint32_t>(frame, bytes, lane);
    if (size % kBulkUnitBytes != 0) {
      return machine.Fail(LaunchError::Code::kMisalignedAddress, warp, lane,
                          std::string(name) + " of " + std::to_string(size) +
                              " bytes; the size must be a multiple of 16");
    }
    AsyncRange to, from;
    const std::string end = std::string(" of ") + name;
    if (!FindRange(machine, warp, frame, source, lane, size, kBulkUnitBytes,
                   ("the source" + end).c_str(), &from) ||
        !FindRange(machine, warp, frame, target, lane, size, kBulkUnitBytes,
                   ("the destination" + end).c_str(), &to))
      return false;
    const auto make = [&](std::byte* destination) {
      auto copy = std::make_unique<LinearCopy>(destination, from.pointer, size);
      if (reduction) copy->Reduce(*reduction);
      return copy;
    };
    if (!mbarrier.Present()) {
      machine.Copies(warp).StartInGroup(warp, lane, make(to.pointer));
      return true;
    }
    MbarrierPlace place;
    if (!FindMbarrier(machine, warp, frame, mbarrier, lane, &place)) return false;
    const uint32_t mask =
        cta_mask == kNoRef ? 0 : LaneValue<uint32_t>(frame, cta_mask, lane) & 0xffff;
    if (mask == 0) {
      return StartOnMbarrier(machine, warp, lane, name, place, to, size, make(to.pointer));
    }
    const auto& blocks = warp.block->cluster->blocks;
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if (((mask >> rank) & 1) == 0) continue;
      if (rank >= blocks.size() || blocks[rank]->ended) {
        return machine.Fail(LaunchError::Code::kLaunchFailure, warp, lane,
                            std::string(name) + " to the block of cluster rank " +
                                std::to_string(rank) + ", which does not exist or has ended");
      }
      AsyncRange there{blocks[rank], to.offset, blocks[rank]->shared.data() + to.offset};
      if (!StartOnMbarrier(machine, warp, lane, name, {blocks[rank], place.offset}, there, size,
                           make(there.pointer)))
        return false;
    }
    return true;
  }
};

// st.async and red.async.
class AsyncStore : public ExtendedOperation {
 public:
  const char* name = "st.async";
  AddressOperand target, mbarrier;
  uint8_t element_shift = 2;
  std::vector<Ref> values;
  std::optional<Reduction> reduction;

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    const uint32_t element = 1u << element_shift;
    const auto size = static_cast<uint32_t>(values.size()) << element_shift;
    const std::string what = std::string("the destination of ") + name;
    const bool ok = ForEachLane(active, [&](uint32_t lane) {
      AsyncRange to;
      MbarrierPlace place;
      if (target.Of(frame, lane) % size != 0) {
        return machine.Fail(LaunchError::Code::kIllegalInstruction, warp, lane,
                            what + " must be aligned to its " + std::to_string(size) + " bytes");
      }
      if (!FindRange(machine, warp, frame, target, lane, size, 1, what.c_str(), &to) ||
          !FindMbarrier(machine, warp, frame, mbarrier, lane, &place))
        return false;
      std::vector<std::byte> data(size);
      for (size_t i = 0; i < values.size(); ++i) {
        std::memcpy(data.data() + i * element,
                    Machine::At(frame, values[i]) + size_t{lane} * element, element);
      }
      auto copy = std::make_unique<LinearCopy>(to.pointer, std::move(data));
      if (reduction) copy->Reduce(*reduction);
      copy->set_by_proxy(false);
      return StartOnMbarrier(machine, warp, lane, name, place, to, size, std::move(copy));
    });
    return ok ? Step::kDone : Step::kFault;
  }
};

std::optional<ScalarType> ElementType(Type type) {
  switch (type) {
    case Type::kB32:
      return ScalarType::kB32;
    case Type::kU32:
      return ScalarType::kU32;
    case Type::kS32:
      return ScalarType::kS32;
    case Type::kB64:
      return ScalarType::kB64;
    case Type::kU64:
      return ScalarType::kU64;
    case Type::kS64:
      return ScalarType::kS64;
    case Type::kF16:
      return ScalarType::kF16;
    case Type::kBf16:
      return ScalarType::kBf16;
    case Type::kF32:
      return ScalarType::kF32;
    case Type::kF64:
      return ScalarType::kF64;
    default:
      return std::nullopt;
  }
}

std::optional<Reduction> ParseReduction(const ptx::Instruction& in, Type type) {
  const auto operation = ParseReductionOp(in);
  const auto element = ElementType(type);
  if (!operation || !element) return std::nullopt;
  return Reduction{*operation, *element, 1u << ShiftOf(type)};
}

}  // namespace

std::optional<AtomicOp> ParseReductionOp(const ptx::Instruction& in) {
  struct Row {
    std::string_view name;
    AtomicOp operation;
  };
  constexpr Row kRows[] = {
      {".add", AtomicOp::kAdd},       {".min", AtomicOp::kMin},       {".max", AtomicOp::kMax},
      {".and", AtomicOp::kAnd},       {".or", AtomicOp::kOr},         {".xor", AtomicOp::kXor},
      {".inc", AtomicOp::kIncrement}, {".dec", AtomicOp::kDecrement},
  };
  for (const Row& row : kRows) {
    if (in.Has(row.name)) return row.operation;
  }
  return std::nullopt;
}

bool StartOnMbarrier(Machine& machine, Warp& warp, uint32_t lane, const char* name,
                     MbarrierPlace place, const AsyncRange& to, uint32_t bytes,
                     std::unique_ptr<Transfer> transfer) {
  const emulator::Mbarrier mbarrier(place.word());
  if (!mbarrier.valid()) {
    return FailMbarrier(
        machine, warp, lane, name, place,
        "which holds no mbarrier: mbarrier.init has not run here, or the bytes were "
        "overwritten or invalidated since");
  }
  if (to.block != nullptr && to.block != place.block) {
    return machine.Fail(LaunchError::Code::kIllegalInstruction, warp, lane,
                        std::string(name) + " to the block of cluster rank " +
                            std::to_string(to.block->cluster_rank) + " completes on " +
                            NameMbarrier(warp, place) + "; both must lie in the same block");
  }
  machine.Copies(warp).Start(warp, lane, std::move(transfer), place, bytes);
  return true;
}

bool Decoder::CopyAsync(const ptx::Instruction& in) {
  if (in.modifiers.empty()) return false;
  if (in.modifiers[0] == ".reduce") return in.Has(".tensor") ? CopyTensor(in) : CopyReduceBulk(in);
  if (in.modifiers[0] != ".async") return false;
  if (in.Has(".commit_group") || in.Has(".wait_group") || in.Has(".wait_all"))
    return CopyAsyncGroup(in);
  if (in.Has(".tensor")) return CopyTensor(in);
  if (in.Has(".bulk")) return CopyBulk(in);
  if (in.Has(".mbarrier")) return CopyAsyncMbarrierArrive(in);
  if (in.operands.size() < 3 || in.operands[2].kind != Kind::kImmediate) return false;
  const int64_t bytes = in.operands[2].value;
  if (bytes != 4 && bytes != 8 && bytes != 16) return false;
  AsyncCopy copy;
  MemoryAccess shared;
  shared.space = Space::kShared;
  if (!ReadAddress(in.operands[0], shared, &copy.shared_address)) return false;
  copy.shared_is_32bit = shared.address_is_32bit;
  copy.shared_offset = shared.offset;
  copy.source.space = Space::kGlobal;
  copy.source.element_shift = 2;
  copy.source.count = static_cast<uint8_t>(bytes / 4);
  Ref address = 0;
  if (!ReadAddress(in.operands[1], copy.source, &address)) return false;
  if (in.operands.size() > 3) {
    const ptx::Operand& extra = in.operands[3];
    const bool is_predicate =
        extra.kind == Kind::kNot || (extra.IsRegister() && IsPredicate(extra.reg));
    if (is_predicate) {
      copy.ignore_source = ReadPredicate(extra);
    } else if (!in.Has(".L2::cache_hint") || in.operands.size() > 4) {
      copy.source_bytes = Read(extra, Type::kU32);
    }
  }
  auto* owned = Own(out_.copies);
  *owned = copy;
  Instruction& out = Emit(Op::kCopyAsync);
  out.a = address;
  out.fn.copy = owned;
  return true;
}

bool Decoder::CopyAsyncGroup(const ptx::Instruction& in) {
  const bool is_bulk = in.Has(".bulk");
  if (in.Has(".commit_group")) {
    EmitExtended(
        std::make_shared<Group>(is_bulk ? Group::Kind::kCommitBulk : Group::Kind::kCommit, 0));
    return true;
  }
  if (in.Has(".wait_all")) {
    EmitExtended(std::make_shared<Group>(Group::Kind::kWaitAll, 0));
    return true;
  }
  if (in.operands.size() != 1 || in.operands[0].kind != Kind::kImmediate ||
      !in.operands[0].is_integer)
    return false;
  const auto groups = static_cast<uint32_t>(in.operands[0].value);
  const Group::Kind kind = !is_bulk          ? Group::Kind::kWait
                           : in.Has(".read") ? Group::Kind::kWaitBulkRead
                                             : Group::Kind::kWaitBulk;
  EmitExtended(std::make_shared<Group>(kind, groups));
  return true;
}

bool Decoder::CopyAsyncMbarrierArrive(const ptx::Instruction& in) {
  if (!in.Has(".arrive") || in.operands.size() != 1) return false;
  auto arrive = std::make_shared<ArriveAfterCopies>();
  arrive->increments = !in.Has(".noinc");
  if (!ReadAddressOperand(in.operands[0], in, &arrive->address)) return false;
  EmitExtended(std::move(arrive));
  return true;
}

void Decoder::BulkSpaces(const ptx::Instruction& in, Space* target, Space* source) {
  bool first = true;
  for (std::string_view modifier : in.modifiers) {
    Space space = Space::kGeneric;
    if (modifier == ".global") space = Space::kGlobal;
    if (modifier == ".shared" || modifier == ".shared::cta") space = Space::kShared;
    if (modifier == ".shared::cluster") space = Space::kSharedCluster;
    if (space == Space::kGeneric) continue;
    *(first ? target : source) = space;
    first = false;
  }
}

bool Decoder::CopyBulk(const ptx::Instruction& in) {
  if (in.Has(".prefetch")) return true;  // a hint
  if (in.Has(".cp_mask") || in.Has(".ignore_oob")) return false;
  return StartBulk(in, "cp.async.bulk", false);
}

bool Decoder::CopyReduceBulk(const ptx::Instruction& in) {
  return StartBulk(in, "cp.reduce.async.bulk", true);
}

bool Decoder::StartBulk(const ptx::Instruction& in, const char* name, bool reduces) {
  auto copy = std::make_shared<BulkCopy>();
  copy->name = name;
  Space target = Space::kGeneric, source = Space::kGeneric;
  BulkSpaces(in, &target, &source);
  if (target == Space::kGeneric || source == Space::kGeneric || in.operands.size() < 3)
    return false;
  if (!ReadAddressIn(target, in.operands[0], &copy->target) ||
      !ReadAddressIn(source, in.operands[1], &copy->source))
    return false;
  copy->bytes = Read(in.operands[2], Type::kU32);
  size_t next = 3;
  if (target != Space::kGlobal) {
    if (next >= in.operands.size() || !ReadAddressIn(target, in.operands[next++], &copy->mbarrier))
      return false;
  }
  if (in.Has(".multicast::cluster")) {
    if (next >= in.operands.size()) return false;
    copy->cta_mask = Resize(Read(in.operands[next++], Type::kU16), Type::kU16, 2);
  }
  if (reduces) {
    copy->reduction = ParseReduction(in, LastType(in));
    if (!copy->reduction) return false;
  }
  EmitExtended(std::move(copy));
  return true;
}

bool Decoder::StoreAsync(const ptx::Instruction& in) {
  const bool reduces = in.opcode == "red";
  const Type type = LastType(in);
  if (in.operands.size() != 3 || !in.Has(".shared::cluster") || ShiftOf(type) < 2) return false;
  auto store = std::make_shared<AsyncStore>();
  store->name = reduces ? "red.async" : "st.async";
  store->element_shift = ShiftOf(type);
  if (!ReadAddressIn(Space::kSharedCluster, in.operands[0], &store->target) ||
      !ReadAddressIn(Space::kSharedCluster, in.operands[2], &store->mbarrier))
    return false;
  if (in.operands[1].kind == Kind::kVector) {
    for (const ptx::Operand& element : in.operands[1].children)
      store->values.push_back(Read(element, type));
  } else {
    store->values.push_back(Read(in.operands[1], type));
  }
  if (reduces) {
    store->reduction = ParseReduction(in, type);
    if (!store->reduction) return false;
  }
  EmitExtended(std::move(store));
  return true;
}

}  // namespace ops_debug::emulator
