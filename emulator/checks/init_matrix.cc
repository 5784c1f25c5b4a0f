// How undefined values pass through matrix instructions: element by element. A copy takes each
// element's bits along. An element of a product is undefined if one of its row of a, its column of
// b or its element of c is; in integer products a factor that is known to be zero hides the other.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "emulator/checks/init_check.h"
#include "emulator/machine.h"
#include "emulator/matrix_copy.h"
#include "emulator/matrix_multiply.h"
#include "emulator/matrix_warpgroup.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kRows = 8;
constexpr uint32_t kRowBytes = 16;
constexpr uint32_t kChunkBytes = 16;

// An 8x8 matrix of 16-bit elements.
struct UndefinedTile {
  uint16_t bits[kRows][kRows] = {};
  ReadOrigin origins[kRows][kRows] = {};
};

// Element 0 or 1 of a lane's register; `transpose`: lanes hold columns.
std::pair<uint32_t, uint32_t> ElementOfLane(uint32_t lane, uint32_t element, bool transpose) {
  const uint32_t across = lane / 4, along = lane % 4 * 2 + element;
  return transpose ? std::pair{along, across} : std::pair{across, along};
}

UndefinedTile TileOf(const RegisterDefinedness& registers, Ref ref, bool transpose) {
  UndefinedTile tile;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint64_t bits = registers.BitsOf(ref, 2, lane);
    if (bits == 0) continue;
    for (uint32_t element = 0; element < 2; ++element) {
      const auto [row, column] = ElementOfLane(lane, element, transpose);
      tile.bits[row][column] = static_cast<uint16_t>(bits >> (16 * element));
      tile.origins[row][column] = registers.OriginOf(ref, lane);
    }
  }
  return tile;
}

void SetTile(RegisterDefinedness& registers, Ref ref, const UndefinedTile& tile, bool transpose,
             uint32_t active) {
  UndefinedLanes lanes;
  lanes.Clear();
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    uint64_t bits = 0;
    for (uint32_t element = 0; element < 2; ++element) {
      const auto [row, column] = ElementOfLane(lane, element, transpose);
      bits |= static_cast<uint64_t>(tile.bits[row][column]) << (16 * element);
      if (tile.bits[row][column] != 0) lanes.origins[lane] = tile.origins[row][column];
    }
    lanes.Put(2, lane, bits);
  }
  registers.Set(ref, 2, lanes, active);
}

// Which elements of a matrix are undefined, row-major; empty: none.
struct UndefinedMatrix {
  std::vector<ReadOrigin> origins;  // 0: defined
  bool Any() const { return !origins.empty(); }
  ReadOrigin At(size_t place) const { return origins.empty() ? 0 : origins[place]; }
  void Mark(size_t size, size_t place, ReadOrigin origin) {
    if (origins.empty()) origins.assign(size, 0);
    origins[place] = origin & ~kCarried;
  }
};

UndefinedMatrix GatherUndefined(const RegisterDefinedness& registers, const Fragment& fragment,
                                const std::vector<Ref>& refs) {
  UndefinedMatrix out;
  const uint32_t width = BitsOf(fragment.type());
  const uint8_t shift = width == 64 ? 3 : 2;
  const uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
  for (uint32_t reg = 0; reg < refs.size(); ++reg) {
    if (!registers.IsUndefined(refs[reg])) continue;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      const uint64_t bits = registers.BitsOf(refs[reg], shift, lane);
      for (uint32_t element = 0; bits != 0 && element < fragment.Elements(); ++element) {
        if (((bits >> (element * width)) & mask) != 0)
          out.Mark(fragment.size(), fragment.Place(reg, lane, element),
                   registers.OriginOf(refs[reg], lane));
      }
    }
  }
  return out;
}

void ScatterUndefined(RegisterDefinedness& registers, const Fragment& fragment,
                      const std::vector<Ref>& refs, const UndefinedMatrix& matrix,
                      uint32_t active) {
  const uint32_t width = BitsOf(fragment.type());
  const uint8_t shift = width == 64 ? 3 : 2;
  const uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
  for (uint32_t reg = 0; reg < refs.size(); ++reg) {
    UndefinedLanes lanes;
    lanes.Clear();
    for (uint32_t lane = 0; lane < kWarpLanes && matrix.Any(); ++lane) {
      uint64_t bits = 0;
      for (uint32_t element = 0; element < fragment.Elements(); ++element) {
        const ReadOrigin origin = matrix.At(fragment.Place(reg, lane, element));
        if (origin == 0) continue;
        bits |= mask << (element * width);
        lanes.origins[lane] = origin;
      }
      lanes.Put(shift, lane, bits);
    }
    registers.Set(refs[reg], shift, lanes, active);
  }
}

// The undefined elements of d = a * b + c. `values_*`: of integer products, else empty.
struct Product {
  uint32_t rows, columns, depth;
  bool is_quads = false;
  UndefinedMatrix a, b, c;
  std::vector<uint32_t> values_a, values_b;
  bool is_sparse = false;
  ReadOrigin metadata = 0;

  UndefinedMatrix Result() const;

 private:
  ReadOrigin OfElement(uint32_t row, uint32_t column) const;
};

ReadOrigin Product::OfElement(uint32_t row, uint32_t column) const {
  if (metadata != 0) return metadata;
  const uint32_t b_columns = is_quads ? columns * 4 : columns;
  const uint32_t b_column = is_quads ? row / kRows * columns + column : column;
  const uint32_t b_rows = static_cast<uint32_t>(b.origins.size() / b_columns);
  const bool has_values = !values_a.empty() && !is_sparse;
  if (a.Any()) {
    for (uint32_t k = 0; k < depth; ++k) {
      const ReadOrigin origin = a.At(size_t{row} * depth + k);
      if (origin == 0) continue;
      const size_t other = size_t{k} * b_columns + b_column;
      if (has_values && b.At(other) == 0 && values_b[other] == 0) continue;
      return origin;
    }
  }
  for (uint32_t k = 0; k < b_rows; ++k) {
    const ReadOrigin origin = b.At(size_t{k} * b_columns + b_column);
    if (origin == 0) continue;
    const size_t other = size_t{row} * depth + k;
    if (has_values && a.At(other) == 0 && values_a[other] == 0) continue;
    return origin;
  }
  return c.At(size_t{row} * columns + column);
}

UndefinedMatrix Product::Result() const {
  UndefinedMatrix out;
  if (!a.Any() && !b.Any() && !c.Any() && metadata == 0) return out;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      const ReadOrigin origin = OfElement(row, column);
      if (origin != 0) out.Mark(size_t{rows} * columns, size_t{row} * columns + column, origin);
    }
  }
  return out;
}

bool IsInteger(MatrixRule rule) { return rule == MatrixRule::kInteger; }

ReadOrigin MetadataOrigin(const RegisterDefinedness& registers, const SparseMetadata& metadata) {
  if (metadata.word == kNoRef || !registers.IsUndefined(metadata.word)) return 0;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (registers.BitsOf(metadata.word, 2, lane) != 0)
      return registers.OriginOf(metadata.word, lane) & ~kCarried;
  }
  return 0;
}

}  // namespace

void RowsOperation::PassDefinedness(InitCheck& check, Warp& warp, Split& split,
                                    const Instruction& in, uint32_t active) const {
  Frame& frame = *split.frame;
  const InitCheck::Place place{warp, frame, in};
  RegisterDefinedness& known = check.Registers(frame);
  const auto count = static_cast<uint32_t>(registers.size());
  const uint32_t naming = count == 4 ? kAllLanes : (1u << (count * kRows)) - 1;
  check.UseRegister(place, address.base, naming, "address");
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    UndefinedTile tile;
    if (is_store) tile = TileOf(known, registers[matrix], transpose);
    for (uint32_t row = 0; row < kRows; ++row) {
      const uint32_t lane = matrix * kRows + row;
      const uint64_t at = address.Of(frame, lane);
      uint8_t undefined[kRowBytes];
      ReadOrigin origins[kRowBytes / 4] = {};
      if (!is_store) {
        if (!check.LoadBytes(place, address.space, at, lane, kRowBytes, undefined, origins))
          continue;
        std::memcpy(tile.bits[row], undefined, kRowBytes);
        for (uint32_t i = 0; i < kRows; ++i) tile.origins[row][i] = origins[i / 2];
        continue;
      }
      const auto* bits = tile.bits[row];
      const bool any = std::any_of(bits, bits + kRows, [](uint16_t b) { return b != 0; });
      ReadOrigin origin = 0;
      for (uint32_t i = 0; i < kRows; ++i) {
        if (bits[i] != 0) origin = tile.origins[row][i];
      }
      std::memcpy(undefined, bits, kRowBytes);
      check.StoreBytes(place, address.space, at, lane, kRowBytes, any ? undefined : nullptr,
                       origin);
    }
    if (!is_store) SetTile(known, registers[matrix], tile, transpose, active);
  }
}

void TransposeOperation::PassDefinedness(InitCheck& check, Warp& /*warp*/, Split& split,
                                         const Instruction& /*in*/, uint32_t active) const {
  RegisterDefinedness& known = check.Registers(*split.frame);
  if (!known.IsUndefined(source)) return check.DefineRegister(*split.frame, destination, active);
  SetTile(known, destination, TileOf(known, source, false), true, active);
}

void FragmentCopyOperation::PassDefinedness(InitCheck& check, Warp& warp, Split& split,
                                            const Instruction& in, uint32_t active) const {
  Frame& frame = *split.frame;
  const InitCheck::Place place{warp, frame, in};
  RegisterDefinedness& known = check.Registers(frame);
  check.UseRegister(place, address.base, active, "address");
  check.UseRegister(place, stride, active, "address");
  const auto first = static_cast<uint32_t>(__builtin_ctz(active));
  const uint64_t base = address.Of(frame, first);
  uint32_t pitch;
  std::memcpy(&pitch, Machine::At(frame, stride) + first * sizeof(pitch), sizeof(pitch));
  const uint32_t bits = BitsOf(fragment.type());
  const uint8_t shift = bits == 64 ? 3 : 2;
  const uint32_t bytes = 1u << shift;
  // Elements narrower than a byte lie side by side, as a register's do.
  const uint32_t elements = bits < 8 ? 1 : fragment.Elements();
  const uint32_t element_bytes = bytes / elements;
  for (uint32_t reg = 0; reg < registers.size(); ++reg) {
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      uint64_t value = 0;
      ReadOrigin origin = 0;
      const uint64_t stored = is_store ? known.BitsOf(registers[reg], shift, lane) : 0;
      if (stored != 0) origin = known.OriginOf(registers[reg], lane);
      for (uint32_t e = 0; e < elements; ++e) {
        const uint32_t at = fragment.Place(reg, lane, e);
        const uint64_t row = at / fragment.columns(), column = at % fragment.columns();
        const uint64_t offset =
            (row_major ? row * pitch + column : column * pitch + row) * bits / 8;
        if (is_store) {
          const uint64_t mask = element_bytes == 8 ? ~0ull : (1ull << (8 * element_bytes)) - 1;
          check.StoreElement(place, address.space, base + offset, lane, element_bytes,
                             (stored >> (8 * element_bytes * e)) & mask, origin);
          continue;
        }
        uint8_t undefined[8] = {};
        ReadOrigin origins[2] = {};
        if (!check.LoadBytes(place, address.space, base + offset, lane, element_bytes, undefined,
                             origins))
          continue;
        uint64_t part = 0;
        std::memcpy(&part, undefined, element_bytes);
        value |= part << (8 * element_bytes * e);
        if (part != 0) origin = origins[0];
      }
      if (!is_store) known.SetLane(registers[reg], shift, lane, value, origin);
    }
  }
}

void MultiplyOperation::PassDefinedness(InitCheck& check, Warp& /*warp*/, Split& split,
                                        const Instruction& /*in*/, uint32_t active) const {
  Frame& frame = *split.frame;
  RegisterDefinedness& known = check.Registers(frame);
  if (known.IsClean()) return;
  Product product{problem.rows, problem.columns, problem.depth};
  product.is_quads = problem.rule == MatrixRule::kQuads;
  product.is_sparse = metadata.word != kNoRef;
  product.metadata = MetadataOrigin(known, metadata);
  product.a = GatherUndefined(known, fragments.a, a);
  product.b = GatherUndefined(known, fragments.b, b);
  product.c = GatherUndefined(known, fragments.c, c);
  if (IsInteger(problem.rule) && (product.a.Any() || product.b.Any())) {
    fragments.a.Gather(frame, a, &product.values_a);
    fragments.b.Gather(frame, b, &product.values_b);
  }
  ScatterUndefined(known, fragments.d, d, product.Result(), active);
}

// As WarpgroupMultiply::ReadShared places elements.
void WarpgroupMultiply::ReadUndefined(InitCheck& check, Warp& warp, Frame& frame,
                                      const Instruction& in, uint32_t lane, bool is_a,
                                      std::vector<ReadOrigin>* origins) const {
  constexpr uint32_t kGroupWarps = 4, kWarpRows = 16;
  uint64_t raw;
  std::memcpy(&raw, Machine::At(frame, is_a ? a_descriptor : b_descriptor) + lane * sizeof(raw),
              sizeof(raw));
  const MatrixDescriptor descriptor(raw);
  const bool k_major = is_a ? a_k_major : b_k_major;
  const uint32_t depth = is_a ? problem.depth : b_depth;
  const uint32_t width = BitsOf(is_a ? problem.a : problem.b);
  const uint32_t per_chunk = 8 * kChunkBytes / width;
  const uint32_t first_row = is_a ? warp.index % kGroupWarps * kWarpRows : 0;
  const uint32_t rows = is_a ? kWarpRows : problem.columns;
  const uint32_t k_step = is_a ? 1 : problem.columns;
  const uint32_t row_step = is_a ? depth : 1;
  const uint32_t outer_step = k_major ? row_step : k_step;
  const uint32_t inner_step = k_major ? k_step : row_step;
  const uint32_t outers = k_major ? rows : depth;
  const uint32_t chunks = (k_major ? depth : rows) / per_chunk;
  for (uint32_t outer = 0; outer < outers; ++outer) {
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t at =
          descriptor.AddressOf((k_major ? first_row : 0) + outer,
                               (k_major ? 0 : first_row / per_chunk) + chunk, k_major);
      uint8_t undefined[kChunkBytes];
      ReadOrigin words[kChunkBytes / 4];
      if (!check.LoadBytes({warp, frame, in}, Space::kShared, at, lane, kChunkBytes, undefined,
                           words))
        continue;
      if (origins->empty()) origins->assign(size_t{rows} * depth, 0);
      for (uint32_t i = 0; i < per_chunk; ++i) {
        const uint32_t first_bit = i * width;
        bool any = false;
        for (uint32_t bit = first_bit; bit < first_bit + width; ++bit)
          any = any || (undefined[bit / 8] >> (bit % 8) & 1) != 0;
        if (!any) continue;
        (*origins)[size_t{outer} * outer_step + (size_t{chunk} * per_chunk + i) * inner_step] =
            words[first_bit / 32] & ~kCarried;
      }
    }
  }
}

void WarpgroupMultiply::PassDefinedness(InitCheck& check, Warp& warp, Split& split,
                                        const Instruction& in, uint32_t active) const {
  Frame& frame = *split.frame;
  RegisterDefinedness& known = check.Registers(frame);
  const InitCheck::Place place{warp, frame, in};
  const auto lane = static_cast<uint32_t>(__builtin_ctz(active));
  if (a.empty()) check.UseRegister(place, a_descriptor, active, "address");
  check.UseRegister(place, b_descriptor, active, "address");
  check.UsePredicate(place, scale_d, active, "predicate");
  Product product{problem.rows, problem.columns, problem.depth};
  product.is_sparse = metadata.word != kNoRef;
  product.metadata = MetadataOrigin(known, metadata);
  if (!a.empty()) {
    product.a = GatherUndefined(known, fragments.a, a);
  } else {
    ReadUndefined(check, warp, frame, in, lane, true, &product.a.origins);
  }
  ReadUndefined(check, warp, frame, in, lane, false, &product.b.origins);
  if ((Machine::PredicateAt(frame, scale_d) >> lane & 1) != 0)
    product.c = GatherUndefined(known, fragments.c, d);
  ScatterUndefined(known, fragments.d, d, product.Result(), active);
}

}  // namespace ops_debug::emulator
