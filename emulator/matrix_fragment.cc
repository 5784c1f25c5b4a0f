// Builds the layouts of matrix fragments out of 8-row tiles, and moves elements between registers
// and row-major arrays by them.
#include "emulator/matrix_fragment.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kTile = 8;

// a: blocks of 16 rows, in each the tiles along the depth, in each its upper and lower half.
void AddLeft(Fragment& out, uint32_t rows, uint32_t depth, bool transposed) {
  const uint32_t step = out.Elements();
  const uint32_t block = rows < 16 ? rows : 16;
  for (uint32_t first = 0; first < rows; first += block) {
    for (uint32_t k = 0; k < depth; k += 4 * step) {
      for (uint32_t row = first; row < first + block; row += kTile) {
        out.AddTile(transposed ? k : row, transposed ? row : k, 0, step, !transposed);
      }
    }
  }
}

// b: tiles along the depth, then along the columns.
void AddRight(Fragment& out, uint32_t depth, uint32_t columns, bool transposed) {
  const uint32_t step = out.Elements();
  for (uint32_t column = 0; column < columns; column += kTile) {
    for (uint32_t k = 0; k < depth; k += 4 * step) {
      out.AddTile(transposed ? column : k, transposed ? k : column, 0, step, transposed);
    }
  }
}

// c and d: two elements per lane side by side, in one register or in two.
Fragment Accumulator(MatrixType type, MatrixShape shape, bool transposed) {
  Fragment out(type, shape.m, shape.n);
  const uint32_t outer = transposed ? shape.m : shape.n;
  const uint32_t inner = transposed ? shape.n : shape.m;
  for (uint32_t i = 0; i < outer; i += kTile) {
    for (uint32_t j = 0; j < inner; j += kTile) {
      for (uint32_t first = 0; first < 2; first += out.Elements()) {
        out.AddTile(transposed ? i : j, transposed ? j : i, first, 2, !transposed);
      }
    }
  }
  return out;
}

template <uint32_t kWidth>
void GatherWords(Frame& frame, std::span<const Ref> registers, const uint16_t* place,
                 uint32_t* out) {
  constexpr uint32_t kMask = kWidth == 32 ? ~0u : (1u << (kWidth % 32)) - 1;
  for (const Ref ref : registers) {
    const auto* words = reinterpret_cast<const uint32_t*>(Machine::At(frame, ref));
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      for (uint32_t e = 0; e < 32 / kWidth; ++e) {
        out[place[e]] = (words[lane] >> (e * kWidth)) & kMask;
      }
      place += 32 / kWidth;
    }
  }
}

}  // namespace

void Fragment::AddTile(uint32_t row, uint32_t column, uint32_t first, uint32_t step,
                       bool along_rows) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t across = lane / 4;
    for (uint32_t e = 0; e < Elements(); ++e) {
      const uint32_t along = first + lane % 4 * step + e;
      Add(row + (along_rows ? across : along), column + (along_rows ? along : across));
    }
  }
}

void Fragment::RepeatTo(uint32_t count) {
  const size_t wanted = static_cast<size_t>(count) * kWarpLanes * Elements();
  for (size_t i = 0; place_.size() < wanted; ++i) place_.push_back(place_[i]);
}

void Fragment::Gather(Frame& frame, std::span<const Ref> registers,
                      std::vector<uint32_t>* bits) const {
  bits->resize(size());
  uint32_t* const out = bits->data();
  switch (BitsOf(type_)) {
    case 32:
      return GatherWords<32>(frame, registers, place_.data(), out);
    case 16:
      return GatherWords<16>(frame, registers, place_.data(), out);
    case 8:
      return GatherWords<8>(frame, registers, place_.data(), out);
    case 4:
      return GatherWords<4>(frame, registers, place_.data(), out);
    default:
      return GatherWords<1>(frame, registers, place_.data(), out);
  }
}

void Fragment::Gather(Frame& frame, std::span<const Ref> registers,
                      std::vector<double>* values) const {
  values->resize(size());
  const uint16_t* place = place_.data();
  for (const Ref ref : registers) {
    const auto* lanes = reinterpret_cast<const double*>(Machine::At(frame, ref));
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) (*values)[*place++] = lanes[lane];
  }
}

void Fragment::Scatter(Machine& machine, Frame& frame, std::span<const Ref> registers,
                       const std::vector<uint32_t>& bits, uint32_t active) const {
  const uint16_t* place = place_.data();
  const bool pairs = BitsOf(type_) == 16;
  alignas(kLaneArrayAlignment) uint32_t words[kWarpLanes];
  for (const Ref ref : registers) {
    for (uint32_t& word : words) {
      word = bits[*place++];
      if (pairs) word |= bits[*place++] << 16;
    }
    machine.StoreLanes32(frame, ref, words, active);
  }
}

void Fragment::Scatter(Machine& machine, Frame& frame, std::span<const Ref> registers,
                       const std::vector<double>& values, uint32_t active) const {
  const uint16_t* place = place_.data();
  alignas(kLaneArrayAlignment) double lanes[kWarpLanes];
  for (const Ref ref : registers) {
    for (double& lane : lanes) lane = values[*place++];
    machine.lanes().blend[3](Machine::At(frame, ref), lanes, active);
  }
}

Fragments MakeFragments(MatrixShape shape, MatrixType a, MatrixType b, MatrixType c, MatrixType d,
                        uint32_t depth_a) {
  if (depth_a == 0) depth_a = shape.k;
  // m8n32k16 is computed as the product of the transposes.
  const bool swapped = shape.m == 8 && shape.n > 8;
  Fragments out;
  out.a = Fragment(a, shape.m, depth_a);
  out.b = Fragment(b, shape.k, shape.n);
  if (swapped) {
    AddRight(out.a, depth_a, shape.m, true);
    AddLeft(out.b, shape.n, shape.k, true);
  } else {
    AddLeft(out.a, shape.m, depth_a, false);
    AddRight(out.b, shape.k, shape.n, false);
  }
  out.c = Accumulator(c, shape, swapped);
  out.d = Accumulator(d, shape, swapped);
  return out;
}

Fragments MakeQuadFragments(bool a_is_row, bool b_is_row, MatrixType c, MatrixType d) {
  Fragments out;
  out.a = Fragment(MatrixType::kF16, 32, 4);
  out.b = Fragment(MatrixType::kF16, 4, 32);
  out.c = Fragment(c, 32, 8);
  out.d = Fragment(d, 32, 8);
  for (uint32_t reg = 0; reg < 2; ++reg) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t half = lane < 16 ? 0 : 4;
      const uint32_t first = lane % 16 / 4 * kTile + half;  // row of a, column of b
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t i = reg * 2 + e;
        out.a.Add(first + (a_is_row ? lane % 4 : i), a_is_row ? i : lane % 4);
        out.b.Add(b_is_row ? lane % 4 : i, first + (b_is_row ? i : lane % 4));
      }
    }
  }
  for (Fragment* accumulator : {&out.c, &out.d}) {
    const uint32_t elements = accumulator->Elements();
    for (uint32_t reg = 0; reg < kTile / elements; ++reg) {
      for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        const uint32_t first = lane % 16 / 4 * kTile + (lane < 16 ? 0 : 4);
        for (uint32_t e = 0; e < elements; ++e) {
          if (elements == 2) {
            accumulator->Add(first + lane % 4, reg * 2 + e);
          } else {
            accumulator->Add(first + (lane & 1) + (reg & 2), (reg & 4) + (lane & 2) + (reg & 1));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace ops_debug::emulator
