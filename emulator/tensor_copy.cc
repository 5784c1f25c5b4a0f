// Walking the box of a tensor copy, swizzling and filling; tensor_copy.h explains the geometry.
#include "emulator/tensor_copy.h"

#include <algorithm>
#include <cstring>

#include "emulator/code.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kChunkBytes = 16;

uint32_t DivideUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit; }

// Elements outside the tensor: zero, or what an H200 fills in for every floating-point type (a NaN
// with the bits 0x7ff7 in each half).
void Fill(const TensorMap& map, std::byte* place, uint32_t bytes) {
  if (map.fill == TensorMap::Fill::kZero || !map.IsFloat()) {
    std::memset(place, 0, bytes);
    return;
  }
  constexpr uint16_t kNan = 0x7ff7;
  for (uint32_t i = 0; i + 2 <= bytes; i += 2) std::memcpy(place + i, &kNan, 2);
}

// To the nearest number with 10 bits of fraction, ties to even; NaNs lose sign and payload.
void RoundToTf32(std::byte* place, uint64_t bytes) {
  constexpr uint32_t kUnit = 1u << 13;
  for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
    uint32_t bits;
    std::memcpy(&bits, place + i, 4);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t odd = (bits / kUnit) & 1;
    bits = is_nan ? 0x7fffe000u : (bits + kUnit / 2 - 1 + odd) & ~(kUnit - 1);
    std::memcpy(place + i, &bits, 4);
  }
}

}  // namespace

TensorBox::TensorBox(const TensorMap& map, const TensorCoordinates& coordinates)
    : map_(map), coordinates_(coordinates), element_bytes_(map.ElementBytes()) {
  const bool interleaved = map_.interleave != TensorMap::Interleave::kNone;
  if (map_.mode == TensorMap::Mode::kTiled) {
    for (uint32_t d = 0; d < map_.rank; ++d)
      counts_[d] = DivideUp(map_.box[d], map_.element_stride[d]);
    if (interleaved) {
      element_bytes_ = kChunkBytes * static_cast<uint32_t>(map_.interleave);
      row_step_ = map_.element_stride[0];
      counts_[map_.rank - 2] = 1;
    } else {
      counts_[0] = map_.box[0];  // has no element stride
    }
    for (uint32_t d = 1; d < map_.rank; ++d) rows_ *= counts_[d];
  } else {
    counts_[0] = map_.channels_per_pixel;
    rows_ = map_.pixels_per_column;
  }
  row_elements_ = counts_[0];
  row_bytes_ = row_elements_ * element_bytes_;
  row_pitch_ = map_.swizzle == TensorMap::Swizzle::kNone || interleaved
                   ? row_bytes_
                   : kChunkBytes << static_cast<uint32_t>(map_.swizzle);
}

std::string TensorBox::CheckCoordinates(bool is_load) const {
  const int64_t bytes = int64_t{coordinates_.start[0]} * element_bytes_;
  if (bytes % kChunkBytes != 0) {
    return "starts at byte " + std::to_string(bytes) +
           " of dimension 0, which must be a multiple of 16";
  }
  for (uint32_t d = 0; !is_load && d < map_.rank; ++d) {
    if (coordinates_.start[d] < 0)
      return "writes to negative coordinate " + std::to_string(coordinates_.start[d]) +
             " of dimension " + std::to_string(d) + "; only loads can start outside the tensor";
  }
  if (map_.mode == TensorMap::Mode::kTiled) return {};
  for (uint32_t d = 1; d + 1 < map_.rank; ++d) {
    if (!is_load && (map_.lower_corner[d - 1] < 0 || map_.upper_corner[d - 1] > 0))
      return "writes to a bounding box that reaches outside the tensor";
    const int64_t low = map_.lower_corner[d - 1];
    const int64_t high = int64_t{map_.last_index[d]} + map_.upper_corner[d - 1];
    if (coordinates_.start[d] < low || coordinates_.start[d] > high) {
      return "starts at " + std::to_string(coordinates_.start[d]) + " of dimension " +
             std::to_string(d) + ", outside the bounding box from " + std::to_string(low) + " to " +
             std::to_string(high);
    }
  }
  return {};
}

std::string TensorBox::Check(const TensorMap& map) {
  if (map.magic != TensorMap::kMagic)
    return "does not point to a tensor map of this device (made by cuTensorMapEncode*)";
  if (map.rank == 0 || map.rank > TensorMap::kMaxRank) return "has a tensor map without a rank";
  if (map.interleave != TensorMap::Interleave::kNone && map.mode != TensorMap::Mode::kTiled)
    return "uses an interleaved im2col tensor map, which the CPU device does not support";
  if (map.interleave != TensorMap::Interleave::kNone && map.rank < 3)
    return "uses an interleaved tensor map of fewer than three dimensions";
  return {};
}

TensorBox::Row TensorBox::Clip(const int64_t* outer) const {
  Row row;
  uint64_t address = map_.address;
  for (uint32_t d = 1; d < map_.rank; ++d) {
    if (outer[d] < 0 || outer[d] > int64_t{map_.last_index[d]}) return row;
    address += static_cast<uint64_t>(outer[d]) * map_.stride_bytes[d - 1];
  }
  const int64_t start = coordinates_.start[0];
  const int64_t size = int64_t{map_.last_index[0]} + 1;
  const int64_t step = row_step_;
  const int64_t first = std::clamp<int64_t>((step - 1 - start) / step, 0, row_elements_);
  const int64_t last = std::clamp<int64_t>((size - start + step - 1) / step, first, row_elements_);
  row.first = static_cast<uint32_t>(first);
  row.count = static_cast<uint32_t>(last - first);
  row.address = address + static_cast<uint64_t>(start + first * step) * element_bytes_;
  return row;
}

TensorBox::Row TensorBox::TiledRow(uint64_t index) const {
  int64_t outer[TensorMap::kMaxRank] = {};
  for (uint32_t d = 1; d < map_.rank; ++d) {
    const auto step = static_cast<int64_t>(index % counts_[d]);
    index /= counts_[d];
    outer[d] = int64_t{coordinates_.start[d]} + step * map_.element_stride[d];
  }
  return Clip(outer);
}

// Pixels follow each other in the bounding box: W first, then H, D and N, each in steps of its
// element stride; a coordinate that leaves the box starts again at its lower corner.
TensorBox::Row TensorBox::Im2colRow(uint64_t index) const {
  const uint32_t spatial = map_.rank - 2u;
  int64_t outer[TensorMap::kMaxRank] = {};
  int64_t carry = static_cast<int64_t>(index);
  for (uint32_t s = 0; s < spatial; ++s) {
    const uint32_t d = s + 1;
    const int64_t step = map_.element_stride[d];
    const int64_t low = map_.lower_corner[s];
    const int64_t high = int64_t{map_.last_index[d]} + map_.upper_corner[s];
    const int64_t length = high < low ? 1 : (high - low) / step + 1;
    const int64_t place = (coordinates_.start[d] - low) / step + carry;
    const int64_t phase = (coordinates_.start[d] - low) % step;
    carry = place / length;
    // The first line starts where the coordinates say, later ones at the lower corner.
    outer[d] = low + place % length * step + (carry == 0 ? phase : 0);
    outer[d] += static_cast<int64_t>(coordinates_.offset[s]);
  }
  const uint32_t n = map_.rank - 1u;
  outer[n] = int64_t{coordinates_.start[n]} + carry * map_.element_stride[n];
  return Clip(outer);
}

TensorBox::Row TensorBox::RowAt(uint64_t index) const {
  return map_.mode == TensorMap::Mode::kTiled ? TiledRow(index) : Im2colRow(index);
}

uint64_t TensorBox::SharedAddress(uint64_t base, uint64_t row, uint64_t column) const {
  const uint64_t address = base + row * row_pitch_ + column;
  const uint32_t bits = static_cast<uint32_t>(map_.swizzle);  // 1, 2, 3: 32, 64, 128 bytes
  const uint64_t mask = (1u << bits) - 1;
  return address ^ (((address >> 7) & mask) << 4);
}

void TensorLoad::Read() {
  buffer_.resize(box_.bytes());
  const uint32_t element = box_.element_bytes();
  for (uint64_t i = 0; i < box_.rows(); ++i) {
    const TensorBox::Row row = box_.RowAt(i);
    std::byte* const out = buffer_.data() + i * box_.row_bytes();
    const uint32_t before = row.first * element;
    const uint32_t inside = row.count * element;
    Fill(box_.map(), out, before);
    Fill(box_.map(), out + before + inside, box_.row_bytes() - before - inside);
    const auto* const from = reinterpret_cast<const std::byte*>(row.address);
    if (box_.step_bytes() == element) {
      if (inside != 0) std::memcpy(out + before, from, inside);
    } else {
      for (uint32_t e = 0; e < row.count; ++e)
        std::memcpy(out + before + e * element, from + size_t{e} * box_.step_bytes(), element);
    }
    if (box_.map().type == TensorMap::Type::kTf32 || box_.map().type == TensorMap::Type::kTf32Ftz)
      RoundToTf32(out + before, inside);
  }
}

namespace {

// Calls body(place in shared memory, place in the buffer, bytes) for the chunks of a box.
template <class Body>
void ForEachChunk(const TensorBox& box, uint64_t base, Body body) {
  for (uint64_t row = 0; row < box.rows(); ++row) {
    for (uint32_t column = 0; column < box.row_bytes(); column += kChunkBytes) {
      body(box.SharedAddress(base, row, column), row * box.row_bytes() + column,
           std::min(kChunkBytes, box.row_bytes() - column));
    }
  }
}

// Calls body(place in shared memory, global address or 0, bytes) for what a box copies; neighbours
// in both memories go together.
template <class Body>
void ForEachPair(const TensorBox& box, uint64_t base, Body body) {
  uint64_t shared = 0, address = 0, length = 0;
  const auto add = [&](uint64_t to, uint64_t from, uint64_t bytes) {
    const bool continues = length != 0 && to == shared + length &&
                           (from == 0 ? address == 0 : address != 0 && from == address + length);
    if (!continues) {
      if (length != 0) body(shared, address, length);
      shared = to;
      address = from;
      length = 0;
    }
    length += bytes;
  };
  const uint32_t element = box.element_bytes();
  for (uint64_t i = 0; i < box.rows(); ++i) {
    const TensorBox::Row row = box.RowAt(i);
    const uint64_t inside = uint64_t{row.first} * element;
    const uint64_t behind = inside + uint64_t{row.count} * element;
    for (uint64_t column = 0; column < box.row_bytes();) {
      // To the end of the chunk, of the part inside the tensor, or of a strided element.
      uint64_t end =
          std::min<uint64_t>(column / kChunkBytes * kChunkBytes + kChunkBytes, box.row_bytes());
      uint64_t from = 0;
      if (column < inside) {
        end = std::min(end, inside);
      } else if (column < behind) {
        end = std::min(end, behind);
        const uint64_t at = (column - inside) / element;
        if (box.step_bytes() != element) end = std::min(end, inside + (at + 1) * element);
        from = row.address + at * box.step_bytes() + (column - inside) % element;
      }
      add(box.SharedAddress(base, i, column), from, end - column);
      column = end;
    }
  }
  if (length != 0) body(shared, address, length);
}

}  // namespace

void TensorLoad::ForEachPiece(const Piece& piece) const {
  ForEachPair(box_, base_, [&](uint64_t shared, uint64_t address, uint64_t bytes) {
    piece(shared_ + shared, reinterpret_cast<const std::byte*>(address), bytes);
  });
}

void TensorStore::ForEachPiece(const Piece& piece) const {
  ForEachPair(box_, base_, [&](uint64_t shared, uint64_t address, uint64_t bytes) {
    // What lies outside the tensor is read, but not stored.
    piece(reinterpret_cast<std::byte*>(address), shared_ + shared, bytes);
  });
}

void TensorLoad::Write() {
  ForEachChunk(box_, base_, [&](uint64_t shared, uint64_t place, uint32_t bytes) {
    std::memcpy(shared_ + shared, buffer_.data() + place, bytes);
  });
}

void TensorStore::Read() {
  buffer_.resize(box_.bytes());
  ForEachChunk(box_, base_, [&](uint64_t shared, uint64_t place, uint32_t bytes) {
    std::memcpy(buffer_.data() + place, shared_ + shared, bytes);
  });
}

void TensorStore::Write() {
  const uint32_t element = box_.element_bytes();
  const bool dense = box_.step_bytes() == element;
  for (uint64_t i = 0; i < box_.rows(); ++i) {
    const TensorBox::Row row = box_.RowAt(i);
    const std::byte* from = buffer_.data() + i * box_.row_bytes() + size_t{row.first} * element;
    auto* to = reinterpret_cast<std::byte*>(row.address);
    const uint32_t pieces = dense ? (row.count != 0 ? 1 : 0) : row.count;
    const uint64_t bytes = dense ? uint64_t{row.count} * element : element;
    for (uint32_t piece = 0; piece < pieces; ++piece) {
      if (reduces_) {
        ReduceInto(to, from, bytes, reduction_);
      } else {
        std::memcpy(to, from, bytes);
      }
      from += bytes;
      to += box_.step_bytes();
    }
  }
}

}  // namespace ops_debug::emulator
