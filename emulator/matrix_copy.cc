// ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store: addresses are checked lane by lane, data
// moves a row (ldmatrix, stmatrix) or a register (wmma) at a time.
#include "emulator/matrix_copy.h"

#include <bit>
#include <cstring>

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kRows = 8;
constexpr uint32_t kRowBytes = 16;

// Register of an 8x8 matrix whose rows are `rows`: lane l has elements 2 (l % 4) and the next of
// row l / 4, or of column l / 4 if transposed.
void RowsToLanes(const uint16_t (*rows)[kRows], bool transpose, uint32_t* lanes) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t i = lane / 4;
    const uint32_t j = lane % 4 * 2;
    const uint32_t low = transpose ? rows[j][i] : rows[i][j];
    const uint32_t high = transpose ? rows[j + 1][i] : rows[i][j + 1];
    lanes[lane] = low | high << 16;
  }
}

void LanesToRows(const uint32_t* lanes, bool transpose, uint16_t (*rows)[kRows]) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t i = lane / 4;
    const uint32_t j = lane % 4 * 2;
    (transpose ? rows[j][i] : rows[i][j]) = static_cast<uint16_t>(lanes[lane]);
    (transpose ? rows[j + 1][i] : rows[i][j + 1]) = static_cast<uint16_t>(lanes[lane] >> 16);
  }
}

}  // namespace

uint64_t MatrixAddress::Of(Frame& frame, uint32_t lane) const {
  const std::byte* const lanes = Machine::At(frame, base);
  uint64_t address;
  if (is_32bit) {
    uint32_t narrow;
    std::memcpy(&narrow, lanes + lane * sizeof(narrow), sizeof(narrow));
    address = narrow + static_cast<uint64_t>(offset);
    if (space == Space::kShared || space == Space::kSharedCluster) address &= 0xffffffffu;
  } else {
    std::memcpy(&address, lanes + lane * sizeof(address), sizeof(address));
    address += static_cast<uint64_t>(offset);
  }
  return address;
}

namespace {

// Tells the checks of an access of `lanes`, one of `bytes` bytes by each.
void TellAccess(Machine& machine, Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes,
                bool is_store, Space space, uint32_t bytes, const std::byte* const* pointers,
                const std::byte* const* values) {
  LaunchChecks* const checks = machine.ChecksOf(frame, in);
  if (checks == nullptr) return;
  WarpAccess access;
  access.warp = &warp;
  access.function = frame.function;
  access.frame = &frame;
  access.in = &in;
  access.statement = in.statement;
  access.lanes = lanes;
  access.kind = is_store ? AccessKind::kStore : AccessKind::kLoad;
  access.space = space;
  access.bytes = bytes;
  access.pointers = pointers;
  access.values = values;
  checks->Access(access);
}

}  // namespace

ExtendedOperation::Step RowsOperation::Execute(Machine& machine, Warp& warp, Split& split,
                                               const Instruction& in, uint32_t active) const {
  Frame& frame = *split.frame;
  const auto count = static_cast<uint32_t>(registers.size());
  std::byte* pointers[kWarpLanes];
  for (uint32_t lane = 0; lane < count * kRows; ++lane) {
    const uint64_t row = address.Of(frame, lane);
    if (address.space == Space::kGeneric && !IsSharedGeneric(row)) {
      machine.Fail(LaunchError::Code::kIllegalInstruction, warp, lane,
                   "generic address of a matrix row that is not in shared memory");
      return Step::kFault;
    }
    pointers[lane] = machine.ResolveLane(warp, address.space, row, lane, kRowBytes, is_store);
    if (pointers[lane] == nullptr) {
      machine.FailAccess(warp, address.space, row, lane, kRowBytes);
      return Step::kFault;
    }
  }
  if (machine.launch().checks != nullptr) {
    // The lane that names a row is the one that accesses it.
    uint16_t rows[kWarpLanes / kRows][kRows][kRows];
    const std::byte* values[kWarpLanes] = {};
    for (uint32_t matrix = 0; matrix < count; ++matrix) {
      if (is_store) {
        LanesToRows(reinterpret_cast<const uint32_t*>(Machine::At(frame, registers[matrix])),
                    transpose, rows[matrix]);
      }
      for (uint32_t i = 0; i < kRows; ++i) {
        values[matrix * kRows + i] = is_store ? reinterpret_cast<const std::byte*>(rows[matrix][i])
                                              : pointers[matrix * kRows + i];
      }
    }
    const uint32_t named = count * kRows == kWarpLanes ? kAllLanes : (1u << count * kRows) - 1;
    TellAccess(machine, warp, frame, in, named, is_store, address.space, kRowBytes, pointers,
               values);
  }
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    std::byte* const* const row_pointers = pointers + static_cast<size_t>(matrix) * kRows;
    uint16_t rows[kRows][kRows];
    if (is_store) {
      LanesToRows(reinterpret_cast<const uint32_t*>(Machine::At(frame, registers[matrix])),
                  transpose, rows);
      for (uint32_t i = 0; i < kRows; ++i) std::memcpy(row_pointers[i], rows[i], kRowBytes);
    } else {
      alignas(kLaneArrayAlignment) uint32_t lanes[kWarpLanes];
      for (uint32_t i = 0; i < kRows; ++i) std::memcpy(rows[i], row_pointers[i], kRowBytes);
      RowsToLanes(rows, transpose, lanes);
      machine.StoreLanes32(frame, registers[matrix], lanes, active);
    }
  }
  return Step::kDone;
}

ExtendedOperation::Step TransposeOperation::Execute(Machine& machine, Warp& /*warp*/, Split& split,
                                                    const Instruction& /*in*/,
                                                    uint32_t active) const {
  Frame& frame = *split.frame;
  uint16_t rows[kRows][kRows];
  alignas(kLaneArrayAlignment) uint32_t lanes[kWarpLanes];
  LanesToRows(reinterpret_cast<const uint32_t*>(Machine::At(frame, source)), false, rows);
  RowsToLanes(rows, true, lanes);
  machine.StoreLanes32(frame, destination, lanes, active);
  return Step::kDone;
}

// Elements of a lane's register that lie side by side in memory move in one access, as they do on
// a GPU; misalignment shows the same way.
bool FragmentCopyOperation::CopyRegister(Machine& machine, Warp& warp, Frame& frame,
                                         const Instruction& in, uint32_t index, uint64_t base,
                                         uint64_t stride, uint32_t active) const {
  const uint32_t bits = BitsOf(fragment.type());
  const uint32_t elements = fragment.Elements();
  const auto offset_of = [&](uint32_t lane, uint32_t element) {
    const uint32_t place = fragment.Place(index, lane, element);
    const uint32_t row = place / fragment.columns();
    const uint32_t column = place % fragment.columns();
    return (row_major ? row * stride + column : column * stride + row) * bits / 8;
  };
  std::byte* const lanes = Machine::At(frame, registers[index]);
  const uint32_t register_bytes = bits == 64 ? 8 : 4;
  const bool side_by_side =
      elements == 1 || bits < 8 || offset_of(0, 1) == offset_of(0, 0) + bits / 8;
  const uint32_t bytes = side_by_side ? register_bytes : bits / 8;
  const uint32_t accesses = register_bytes / bytes;
  for (uint32_t i = 0; i < accesses; ++i) {
    const std::byte* pointers[kWarpLanes] = {};
    const std::byte* values[kWarpLanes] = {};
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const uint64_t at = base + offset_of(lane, i);
      std::byte* const pointer =
          machine.ResolveLane(warp, address.space, at, lane, bytes, is_store);
      if (pointer == nullptr) return machine.FailAccess(warp, address.space, at, lane, bytes);
      pointers[lane] = pointer;
      std::byte* const value = lanes + static_cast<size_t>(lane) * register_bytes + i * bytes;
      values[lane] = value;
      std::memcpy(is_store ? pointer : value, is_store ? value : pointer, bytes);
    }
    TellAccess(machine, warp, frame, in, active, is_store, address.space, bytes, pointers, values);
  }
  return true;
}

ExtendedOperation::Step FragmentCopyOperation::Execute(Machine& machine, Warp& warp, Split& split,
                                                       const Instruction& in,
                                                       uint32_t active) const {
  Frame& frame = *split.frame;
  const auto first = static_cast<uint32_t>(std::countr_zero(active));
  const uint64_t base = address.Of(frame, first);
  uint32_t elements;
  std::memcpy(&elements, Machine::At(frame, stride) + first * sizeof(elements), sizeof(elements));
  if (base % alignment_bytes != 0) {
    machine.FailAccess(warp, address.space, base, first, alignment_bytes);
    return Step::kFault;
  }
  for (uint32_t i = 0; i < registers.size(); ++i) {
    if (!CopyRegister(machine, warp, frame, in, i, base, elements, active)) return Step::kFault;
  }
  return Step::kDone;
}

}  // namespace ops_debug::emulator
