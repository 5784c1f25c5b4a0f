// Decoding and starting of tensor copies (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor) and
// the instructions that change tensor maps in memory (tensormap.replace, tensormap.cp_fenceproxy).
// PTX ISA 9.0, 9.7.9.27.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/async_range.h"
#include "emulator/decoder.h"
#include "emulator/lane_operand.h"
#include "emulator/mbarrier_place.h"
#include "emulator/tensor_copy.h"
#include "emulator/tensor_map.h"

namespace ops_debug::emulator {
namespace {

using Kind = ptx::Operand::Kind;

constexpr uint32_t kSharedAlignment = 128;
constexpr uint32_t kTensorMapAlignment = 64;

std::optional<Reduction> ReductionOf(AtomicOp operation, TensorMap::Type type) {
  ScalarType element = ScalarType::kU32;
  switch (type) {
    case TensorMap::Type::kU32:
      break;
    case TensorMap::Type::kS32:
      element = ScalarType::kS32;
      break;
    case TensorMap::Type::kU64:
      element = ScalarType::kU64;
      break;
    case TensorMap::Type::kS64:
      element = ScalarType::kS64;
      break;
    case TensorMap::Type::kF16:
      element = ScalarType::kF16;
      break;
    case TensorMap::Type::kBf16:
      element = ScalarType::kBf16;
      break;
    case TensorMap::Type::kF32:
    case TensorMap::Type::kF32Ftz:
      element = ScalarType::kF32;
      break;
    case TensorMap::Type::kF64:
      element = ScalarType::kF64;
      break;
    default:
      return std::nullopt;
  }
  const bool is_bitwise =
      operation == AtomicOp::kAnd || operation == AtomicOp::kOr || operation == AtomicOp::kXor;
  if (type == TensorMap::Type::kS64 && (is_bitwise || operation == AtomicOp::kAdd))
    return std::nullopt;
  TensorMap of_type;
  of_type.type = type;
  return Reduction{operation, element, of_type.ElementBytes()};
}

class TensorCopy : public ExtendedOperation {
 public:
  const char* name = "cp.async.bulk.tensor";
  bool is_load = true;
  TensorMap::Mode mode = TensorMap::Mode::kTiled;
  uint32_t rank = 1;
  AddressOperand map, shared, mbarrier;
  std::vector<Ref> coordinates;  // 32-bit lanes
  std::vector<Ref> offsets;      // 16-bit lanes
  Ref cta_mask = kNoRef;         // 32-bit lanes
  std::optional<AtomicOp> reduction;

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    const bool ok = ForEachLane(
        active, [&](uint32_t lane) { return StartLane(machine, warp, *split.frame, lane); });
    return ok ? Step::kDone : Step::kFault;
  }

 private:
  bool Illegal(Machine& machine, Warp& warp, uint32_t lane, const std::string& why) const {
    return machine.Fail(LaunchError::Code::kIllegalInstruction, warp, lane,
                        std::string(name) + " " + why);
  }

  bool ReadMap(Machine& machine, Warp& warp, Frame& frame, uint32_t lane, TensorMap* out) const {
    const uint64_t address = map.Of(frame, lane);
    for (uint32_t part = 0; part < sizeof(TensorMap); part += kTensorMapAlignment) {
      const std::byte* const bytes =
          machine.ResolveLane(warp, map.space, address + part, lane, kTensorMapAlignment, false);
      if (bytes == nullptr)
        return machine.FailAccess(warp, map.space, address + part, lane, kTensorMapAlignment);
      std::memcpy(reinterpret_cast<std::byte*>(out) + part, bytes, kTensorMapAlignment);
    }
    const std::string problem = TensorBox::Check(*out);
    if (!problem.empty()) return Illegal(machine, warp, lane, problem);
    if (out->mode != mode) {
      return Illegal(machine, warp, lane,
                     mode == TensorMap::Mode::kTiled
                         ? "in tiled mode uses a tensor map of cuTensorMapEncodeIm2col"
                         : "in im2col mode uses a tensor map of cuTensorMapEncodeTiled");
    }
    if (out->rank != rank) {
      return Illegal(machine, warp, lane,
                     "names " + std::to_string(rank) + " dimensions, its tensor map " +
                         std::to_string(out->rank));
    }
    return true;
  }

  bool CheckGlobal(Machine& machine, Warp& warp, uint32_t lane, const TensorBox& box) const {
    for (uint64_t i = 0; i < box.rows(); ++i) {
      const TensorBox::Row row = box.RowAt(i);
      const uint64_t bytes =
          row.count == 0 ? 0 : uint64_t{row.count - 1} * box.step_bytes() + box.element_bytes();
      if (bytes == 0 || machine.launch().memory->Accessible(row.address, bytes)) continue;
      return machine.Fail(
          LaunchError::Code::kIllegalAddress, warp, lane,
          std::string(name) + ": row " + std::to_string(i) +
              " of the box lies in the tensor of its map, but not in an allocation");
    }
    return true;
  }

  bool StartLane(Machine& machine, Warp& warp, Frame& frame, uint32_t lane) const {
    TensorMap tensor;
    if (!ReadMap(machine, warp, frame, lane, &tensor)) return false;
    TensorCoordinates at;
    for (size_t i = 0; i < coordinates.size(); ++i)
      at.start[i] = LaneValue<int32_t>(frame, coordinates[i], lane);
    for (size_t i = 0; i < offsets.size(); ++i)
      at.offset[i] = LaneValue<uint16_t>(frame, offsets[i], lane);
    const TensorBox box(tensor, at);
    const std::string refused = box.CheckCoordinates(is_load);
    if (!refused.empty()) return Illegal(machine, warp, lane, refused);
    AsyncRange range;
    const std::string what = std::string(is_load ? "the destination of " : "the source of ") + name;
    if (!FindRange(machine, warp, frame, shared, lane, box.footprint_bytes(), kSharedAlignment,
                   what.c_str(), &range) ||
        !CheckGlobal(machine, warp, lane, box))
      return false;
    if (is_load) return StartLoad(machine, warp, frame, lane, box, range);
    auto store = std::make_unique<TensorStore>(box, range.block->shared.data(), range.offset);
    if (reduction) {
      const auto how = ReductionOf(*reduction, tensor.type);
      if (!how)
        return Illegal(machine, warp, lane, "reduces elements of a type that has no reduction");
      store->Reduce(*how);
    }
    machine.Copies(warp).StartInGroup(warp, lane, std::move(store));
    return true;
  }

  bool StartLoad(Machine& machine, Warp& warp, Frame& frame, uint32_t lane, const TensorBox& box,
                 const AsyncRange& range) const {
    MbarrierPlace place;
    if (!FindMbarrier(machine, warp, frame, mbarrier, lane, &place)) return false;
    const auto bytes = static_cast<uint32_t>(box.bytes());
    const auto start = [&](Block* block, MbarrierPlace on) {
      std::byte* const memory = block->shared.data();
      return StartOnMbarrier(machine, warp, lane, name, on,
                             {block, range.offset, memory + range.offset}, bytes,
                             std::make_unique<TensorLoad>(box, memory, range.offset));
    };
    if (cta_mask == kNoRef) return start(range.block, place);
    const auto& blocks = warp.block->cluster->blocks;
    const uint32_t mask = LaneValue<uint32_t>(frame, cta_mask, lane) & 0xffff;
    for (uint32_t rank_bit = 0; rank_bit < 16; ++rank_bit) {
      if (((mask >> rank_bit) & 1) == 0) continue;
      if (rank_bit >= blocks.size() || blocks[rank_bit]->ended) {
        return machine.Fail(LaunchError::Code::kLaunchFailure, warp, lane,
                            std::string(name) + " to the block of cluster rank " +
                                std::to_string(rank_bit) + ", which does not exist or has ended");
      }
      if (!start(blocks[rank_bit], {blocks[rank_bit], place.offset})) return false;
    }
    return true;
  }
};

// tensormap.replace; one lane after the other writes the same field.
class ReplaceField : public ExtendedOperation {
 public:
  enum class Field : uint8_t {
    kAddress,
    kRank,
    kBox,
    kSize,
    kStride,
    kElementStride,
    kType,
    kInterleave,
    kSwizzle,
    kFill,
  };
  Field field = Field::kAddress;
  uint32_t ordinal = 0;
  AddressOperand map;
  Ref value = kNoRef;  // 64-bit lanes

  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    Frame& frame = *split.frame;
    const bool ok = ForEachLane(active, [&](uint32_t lane) {
      AsyncRange range;
      if (!FindRange(machine, warp, frame, map, lane, sizeof(TensorMap), kTensorMapAlignment,
                     "the tensor map of tensormap.replace", &range))
        return false;
      TensorMap tensor;
      std::memcpy(&tensor, range.pointer, sizeof(tensor));
      if (tensor.magic != TensorMap::kMagic ||
          !Apply(LaneValue<uint64_t>(frame, value, lane), &tensor)) {
        return machine.Fail(
            LaunchError::Code::kIllegalInstruction, warp, lane,
            tensor.magic != TensorMap::kMagic
                ? "tensormap.replace of 128 bytes that are no tensor map of this device"
                : "tensormap.replace with a value that the field cannot have");
      }
      std::memcpy(range.pointer, &tensor, sizeof(tensor));
      return true;
    });
    return ok ? Step::kDone : Step::kFault;
  }

 private:
  // The ISA numbers the last floating-point types differently than CUtensorMapDataType.
  static TensorMap::Type ReplacedType(uint64_t number) {
    constexpr TensorMap::Type kTypes[] = {
        TensorMap::Type::kU8,     TensorMap::Type::kU16,  TensorMap::Type::kU32,
        TensorMap::Type::kS32,    TensorMap::Type::kU64,  TensorMap::Type::kS64,
        TensorMap::Type::kF16,    TensorMap::Type::kF32,  TensorMap::Type::kF32Ftz,
        TensorMap::Type::kF64,    TensorMap::Type::kBf16, TensorMap::Type::kTf32,
        TensorMap::Type::kTf32Ftz};
    return kTypes[number];
  }

  bool Apply(uint64_t number, TensorMap* tensor) const {
    switch (field) {
      case Field::kAddress:
        tensor->address = number;
        return true;
      case Field::kRank:
        if (number >= TensorMap::kMaxRank) return false;
        tensor->rank = static_cast<uint8_t>(number + 1);
        return true;
      case Field::kBox:
        if (ordinal >= TensorMap::kMaxRank || number == 0 || number > 256) return false;
        tensor->box[ordinal] = static_cast<uint16_t>(number);
        return true;
      case Field::kSize:
        if (ordinal >= TensorMap::kMaxRank) return false;
        tensor->last_index[ordinal] = static_cast<uint32_t>(number) - 1;
        return true;
      case Field::kStride:
        if (ordinal >= TensorMap::kMaxRank - 1) return false;
        tensor->stride_bytes[ordinal] = number;
        return true;
      case Field::kElementStride:
        if (ordinal >= TensorMap::kMaxRank || number == 0 || number > 8) return false;
        tensor->element_stride[ordinal] = static_cast<uint8_t>(number);
        return true;
      case Field::kType:
        if (number > 12) return false;
        tensor->type = ReplacedType(number);
        return true;
      case Field::kInterleave:
        if (number > 2) return false;
        tensor->interleave = static_cast<TensorMap::Interleave>(number);
        return true;
      case Field::kSwizzle:
        if (number > 3) return false;
        tensor->swizzle = static_cast<TensorMap::Swizzle>(number);
        return true;
      case Field::kFill:
        if (number > 1) return false;
        tensor->fill = static_cast<TensorMap::Fill>(number);
        return true;
    }
    return false;
  }
};

// tensormap.cp_fenceproxy: copies a tensor map from shared to global memory; the fence has nothing
// to order here, where copies read the map when they are started.
class CopyMap : public ExtendedOperation {
 public:
  AddressOperand target, source;
  Step Execute(Machine& machine, Warp& warp, Split& split, const Instruction& /*in*/,
               uint32_t active) const override {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(active));
    AsyncRange to, from;
    if (!FindRange(machine, warp, *split.frame, source, lane, sizeof(TensorMap), 128,
                   "the source of tensormap.cp_fenceproxy", &from) ||
        !FindRange(machine, warp, *split.frame, target, lane, sizeof(TensorMap), 128,
                   "the destination of tensormap.cp_fenceproxy", &to))
      return Step::kFault;
    std::memcpy(to.pointer, from.pointer, sizeof(TensorMap));
    return Step::kDone;
  }
};

}  // namespace

bool Decoder::CopyTensor(const ptx::Instruction& in) {
  if (in.Has(".prefetch")) return true;  // a hint
  auto copy = std::make_shared<TensorCopy>();
  bool reduces = false;
  for (std::string_view modifier : in.modifiers) {
    if (modifier.size() == 3 && modifier[2] == 'd' && modifier[1] >= '1' && modifier[1] <= '5')
      copy->rank = static_cast<uint32_t>(modifier[1] - '0');
    reduces = reduces || modifier == ".reduce";
    if (modifier == ".im2col" || modifier == ".im2col_no_offs")
      copy->mode = TensorMap::Mode::kIm2col;
    // Modes of later architectures.
    if (modifier.starts_with(".tile::") || modifier.starts_with(".im2col::") ||
        modifier.starts_with(".cta_group"))
      return false;
  }
  Space target = Space::kGeneric, source = Space::kGeneric;
  BulkSpaces(in, &target, &source);
  if (target == Space::kGeneric || source == Space::kGeneric || in.operands.size() < 2)
    return false;
  copy->is_load = source == Space::kGlobal;
  if (reduces) {
    copy->name = "cp.reduce.async.bulk.tensor";
    copy->reduction = ParseReductionOp(in);
    if (!copy->reduction || copy->is_load) return false;
  }
  const ptx::Operand& shared = in.operands[copy->is_load ? 0 : 1];
  const ptx::Operand& tensor = in.operands[copy->is_load ? 1 : 0];
  if (!ReadAddressIn(copy->is_load ? target : source, shared, &copy->shared) ||
      !ReadAddressIn(Space::kGeneric, tensor, &copy->map) || tensor.children.size() != 2)
    return false;
  const ptx::Operand& coordinates = tensor.children[1];
  if (coordinates.kind == Kind::kVector) {
    for (const ptx::Operand& coordinate : coordinates.children)
      copy->coordinates.push_back(Read(coordinate, Type::kS32));
  } else {
    copy->coordinates.push_back(Read(coordinates, Type::kS32));
  }
  if (copy->coordinates.size() != copy->rank) return false;
  size_t next = 2;
  if (copy->is_load) {
    if (in.operands.size() < 3 || !ReadAddressIn(target, in.operands[next++], &copy->mbarrier))
      return false;
    if (copy->mode == TensorMap::Mode::kIm2col) {
      if (next >= in.operands.size()) return false;
      const ptx::Operand& offsets = in.operands[next++];
      if (offsets.kind == Kind::kVector) {
        for (const ptx::Operand& offset : offsets.children)
          copy->offsets.push_back(Read(offset, Type::kU16));
      } else {
        copy->offsets.push_back(Read(offsets, Type::kU16));
      }
      if (copy->offsets.size() + 2 != copy->rank) return false;
    }
    if (in.Has(".multicast::cluster")) {
      if (next >= in.operands.size()) return false;
      copy->cta_mask = Resize(Read(in.operands[next++], Type::kU16), Type::kU16, 2);
    }
  }
  EmitExtended(std::move(copy));
  return true;
}

bool Decoder::TensorMapReplace(const ptx::Instruction& in) {
  if (in.modifiers.empty()) return false;
  if (in.modifiers[0] == ".cp_fenceproxy") {
    auto copy = std::make_shared<CopyMap>();
    if (in.operands.size() != 3 || !ReadAddressIn(Space::kGlobal, in.operands[0], &copy->target) ||
        !ReadAddressIn(Space::kShared, in.operands[1], &copy->source))
      return false;
    EmitConvergence();
    EmitExtended(std::move(copy));
    return true;
  }
  if (in.modifiers[0] != ".replace" || !in.Has(".tile")) return false;
  struct Row {
    std::string_view name;
    ReplaceField::Field field;
    bool has_ordinal;
  };
  using Field = ReplaceField::Field;
  constexpr Row kRows[] = {
      {".global_address", Field::kAddress, false},
      {".rank", Field::kRank, false},
      {".box_dim", Field::kBox, true},
      {".global_dim", Field::kSize, true},
      {".global_stride", Field::kStride, true},
      {".element_stride", Field::kElementStride, true},
      {".elemtype", Field::kType, false},
      {".interleave_layout", Field::kInterleave, false},
      {".swizzle_mode", Field::kSwizzle, false},
      {".fill_mode", Field::kFill, false},
  };
  for (const Row& row : kRows) {
    if (!in.Has(row.name)) continue;
    auto replace = std::make_shared<ReplaceField>();
    replace->field = row.field;
    const size_t last = row.has_ordinal ? 2 : 1;
    if (in.operands.size() != last + 1 || !ReadAddressOperand(in.operands[0], in, &replace->map))
      return false;
    if (row.has_ordinal) {
      if (in.operands[1].kind != Kind::kImmediate) return false;
      replace->ordinal = static_cast<uint32_t>(in.operands[1].value);
    }
    const bool wide = LastType(in) == Type::kB64;
    const Ref value = Read(in.operands[last], wide ? Type::kB64 : Type::kB32);
    replace->value = wide ? value : Resize(value, Type::kB32, 3);
    EmitExtended(std::move(replace));
    return true;
  }
  return false;
}

}  // namespace ops_debug::emulator
