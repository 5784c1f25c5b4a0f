// Shared memory across the blocks of a cluster (PTX ISA 9.0, 5.1.7 and mapa, getctarank, cvta,
// isspacep): which block an address names, and the instructions that make and test such addresses.
// The encoding is in code.h. A 32-bit address of a block's own variable does not name the block;
// its generic address does in launches with clusters, because programs hand generic pointers
// around.
#include <algorithm>
#include <memory>
#include <string>

#include "emulator/decoder.h"
#include "emulator/lane_operand.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// The part of a shared::cluster address that names the block of `rank`.
uint64_t RankBits(uint32_t rank) { return (uint64_t{rank} + 1) << kWindowShift; }

// Where the block's own variables lie among the generic addresses.
uint64_t OwnWindow(const Machine& machine, const Warp& warp) {
  return machine.launch().cluster_blocks == 1 ? kSharedWindow
                                              : kSharedWindow + RankBits(warp.block->cluster_rank);
}

// Operations from one lane array `a` to another one, `d`, of 2^width bytes.
template <class Function>
void Map(Frame& frame, const Instruction& in, uint32_t lanes, uint8_t from_shift, uint8_t to_shift,
         Function function) {
  ForEachLane(lanes, [&](uint32_t lane) {
    const uint64_t a = from_shift == 3 ? LaneValue<uint64_t>(frame, in.a, lane)
                                       : LaneValue<uint32_t>(frame, in.a, lane);
    const uint64_t d = function(lane, a);
    if (to_shift == 3) {
      SetLaneValue<uint64_t>(frame, in.d, lane, d);
    } else {
      SetLaneValue<uint32_t>(frame, in.d, lane, static_cast<uint32_t>(d));
    }
    return true;
  });
}

// mapa
class MapAddress : public AddressOperation {
 public:
  MapAddress(bool is_generic, uint8_t shift) : is_generic_(is_generic), shift_(shift) {}
  Step Execute(Machine& /*machine*/, Warp& /*warp*/, Split& split, const Instruction& in,
               uint32_t active) const override {
    const uint64_t window = is_generic_ ? kSharedWindow : 0;
    Map(*split.frame, in, active, shift_, shift_, [&](uint32_t lane, uint64_t address) {
      const auto rank = LaneValue<uint32_t>(*split.frame, in.b, lane);
      return window + RankBits(std::min(rank, 2 * kMaxClusterBlocks)) + (address & kWindowMask);
    });
    return Step::kDone;
  }

 private:
  bool is_generic_;
  uint8_t shift_;
};

// getctarank
class RankOfAddress : public AddressOperation {
 public:
  RankOfAddress(bool is_generic, uint8_t shift) : is_generic_(is_generic), shift_(shift) {}
  Step Execute(Machine& /*machine*/, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    const uint64_t window = is_generic_ ? kSharedWindow : 0;
    Map(*split.frame, in, active, shift_, 2, [&](uint32_t /*lane*/, uint64_t address) -> uint64_t {
      const uint64_t name = (address - window) >> kWindowShift;
      return name == 0 ? warp.block->cluster_rank : name - 1;
    });
    return Step::kDone;
  }

 private:
  bool is_generic_;
  uint8_t shift_;
};

// cvta.shared
class SharedToGeneric : public AddressOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    const uint64_t own = OwnWindow(machine, warp);
    Map(*split.frame, in, active, 3, 3, [&](uint32_t /*lane*/, uint64_t address) {
      return address + (address >> kWindowShift == 0 ? own : kSharedWindow);
    });
    return Step::kDone;
  }
};

// cvta.to.shared
class GenericToShared : public AddressOperation {
 public:
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    const uint64_t own = OwnWindow(machine, warp);
    Map(*split.frame, in, active, 3, 3, [&](uint32_t /*lane*/, uint64_t address) {
      return address - (InWindow(address, own) ? own : kSharedWindow);
    });
    return Step::kDone;
  }
};

// isspacep.shared::cta, isspacep.shared::cluster
class IsShared : public AddressOperation {
 public:
  explicit IsShared(bool any_block) : any_block_(any_block) {}
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& in,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    uint32_t inside = 0;
    const uint64_t end = kSharedWindow + RankBits(machine.launch().cluster_blocks);
    ForEachLane(active, [&](uint32_t lane) {
      const auto address = LaneValue<uint64_t>(frame, in.a, lane);
      const bool own =
          InWindow(address, kSharedWindow) || InWindow(address, OwnWindow(machine, warp));
      const bool any = address >= kSharedWindow && address < end;
      if (own || (any_block_ && any)) inside |= 1u << lane;
      return true;
    });
    Machine::SetPredicate(frame, in.d, inside, active);
    return Step::kDone;
  }

 private:
  bool any_block_;
};

}  // namespace

Block* Machine::SharedBlock(const Warp& warp, Space space, uint64_t address, uint64_t* offset) {
  if (space == Space::kGeneric) {
    if (!IsSharedGeneric(address)) return nullptr;
    address -= kSharedWindow;
  }
  const uint64_t name = address >> kWindowShift;
  *offset = address & kWindowMask;
  if (name == 0) return warp.block;
  const std::vector<Block*>& blocks = warp.block->cluster->blocks;
  if (name > blocks.size()) return nullptr;
  Block* const block = blocks[name - 1];
  if (block == warp.block) return block;
  return space == Space::kShared || block->ended ? nullptr : block;
}

std::string Machine::DescribeSharedAddress(const Warp& warp, Space space, uint64_t address,
                                           LaunchError::Code* code) const {
  *code = LaunchError::Code::kLaunchFailure;
  const uint64_t name = address >> kWindowShift;
  const std::vector<Block*>& blocks = warp.block->cluster->blocks;
  const std::string place =
      ", which is byte " + std::to_string(address & kWindowMask) + " of the shared memory of ";
  if (name > blocks.size()) {
    return place + "a block of rank " + std::to_string(name - 1) + " in a cluster of " +
           std::to_string(blocks.size());
  }
  const Block& block = *blocks[name - 1];
  const std::string peer = place + "the block of cluster rank " + std::to_string(name - 1);
  if (&block == warp.block || (!block.ended && space != Space::kShared)) {
    *code = LaunchError::Code::kIllegalAddress;
    return peer + ", outside its " + std::to_string(launch_.shared_limit_bytes) + " bytes";
  }
  if (space == Space::kShared) {
    *code = LaunchError::Code::kIllegalInstruction;
    return peer +
           ", but this instruction reaches only the block's own (.shared::cta); other "
           "blocks' needs .shared::cluster";
  }
  return peer +
         ", which has already ended: it must wait (barrier.cluster) until the others are "
         "done with its memory";
}

bool Decoder::MapShared(const ptx::Instruction& in) {
  const bool is_map = in.opcode == "mapa";
  if (in.operands.size() != (is_map ? 3u : 2u)) return false;
  const Type type = LastType(in);
  const uint8_t shift = ShiftOf(type);
  if (type != Type::kU32 && type != Type::kU64) return false;
  const bool is_generic = !in.Has(".shared::cluster");
  if (is_generic && shift != 3) return false;
  const Ref a = Read(in.operands[1], type);
  const Ref b = is_map ? Read(in.operands[2], Type::kU32) : kNoRef;
  const Destination d = Write(in.operands[0], is_map ? type : Type::kU32);
  if (is_map) {
    EmitExtended(std::make_shared<MapAddress>(is_generic, shift));
  } else {
    EmitExtended(std::make_shared<RankOfAddress>(is_generic, shift));
  }
  out_.code.back().a = a;
  out_.code.back().b = b;
  out_.code.back().d = d.ref;
  Finish(d);
  return true;
}

bool Decoder::ConvertSharedAddress(const ptx::Instruction& in) {
  const Ref source = Read(in.operands[1], Type::kU64);
  const Destination d = Write(in.operands[0], Type::kU64);
  if (in.Has(".to")) {
    EmitExtended(std::make_shared<GenericToShared>());
  } else {
    EmitExtended(std::make_shared<SharedToGeneric>());
  }
  out_.code.back().a = source;
  out_.code.back().d = d.ref;
  Finish(d);
  return true;
}

bool Decoder::IsSharedSpace(const ptx::Instruction& in) {
  const Ref address = Read(in.operands[1], Type::kU64);
  const Ref d = WritePredicate(in.operands[0]);
  EmitExtended(std::make_shared<IsShared>(in.Has(".shared::cluster")));
  out_.code.back().a = address;
  out_.code.back().d = d;
  return true;
}

}  // namespace ops_debug::emulator
