// One warp's multiplication: gather the fragments, compute, scatter the result; and where a sparse
// operand's metadata lies.
#include "emulator/matrix_multiply.h"

#include <algorithm>

namespace ops_debug::emulator {
namespace {

struct MetadataPlace {
  uint32_t lane_of_four;
  uint32_t shift;  // of the four bits in the lane's word
};

// Where the metadata of chunk `index` of a row is (PTX ISA 9.0, figures of 9.7.14.6). Types of 16
// bits and more: a word holds 16 bits for a row of the upper half and 16 for one of the lower half.
// Narrower types: a word belongs to one row.
MetadataPlace PlaceOfChunk(MatrixType type, uint32_t chunks, uint32_t row, uint32_t index,
                           uint32_t selector) {
  const uint32_t half = row / 8;
  if (BitsOf(type) >= 16) {
    return {chunks == 4 ? selector : selector * 2 + index / 4, half * 16 + index % 4 * 4};
  }
  return {(chunks == 8 ? selector * 2 : index / 8 * 2) + half, index % 8 * 4};
}

// The order that SplitDepth gives to the elements of a, whose rows b_row names.
void SplitRows(uint32_t depth, std::vector<uint8_t>& b_row) {
  std::vector<uint8_t> row(depth);
  for (size_t first = 0; first < b_row.size(); first += depth) {
    for (uint32_t k = 0; k < depth; ++k) row[SplitDepth(k, depth)] = b_row[first + k];
    std::copy(row.begin(), row.end(), b_row.begin() + static_cast<ptrdiff_t>(first));
  }
}

}  // namespace

void ReadMetadata(MatrixType type, uint32_t depth, uint32_t selector, const uint32_t* words,
                  std::vector<uint8_t>* b_row) {
  constexpr uint32_t kRows = 16;
  const uint32_t bits = BitsOf(type);
  const uint32_t stored = depth / 2;
  const uint32_t chunk = bits == 32 ? 2 : bits == 4 ? 8 : 4;  // elements that four bits describe
  b_row->resize(static_cast<size_t>(kRows) * stored);
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t index = 0; index < depth / chunk; ++index) {
      const auto [lane_of_four, shift] = PlaceOfChunk(type, depth / chunk, row, index, selector);
      const uint32_t four = (words[row % 8 * 4 + lane_of_four] >> shift) & 15;
      uint8_t* const out = b_row->data() + static_cast<size_t>(row) * stored;
      const uint32_t first = index * chunk;
      const uint32_t low = four & 3;
      const uint32_t high = four >> 2;
      if (chunk == 2) {
        out[index] = static_cast<uint8_t>(first + low / 2);
      } else if (chunk == 4) {
        out[index * 2] = static_cast<uint8_t>(first + low);
        out[index * 2 + 1] = static_cast<uint8_t>(first + high);
      } else {
        for (uint32_t i = 0; i < 2; ++i) {
          out[index * 4 + i] = static_cast<uint8_t>(first + low * 2 + i);
          out[index * 4 + 2 + i] = static_cast<uint8_t>(first + high * 2 + i);
        }
      }
    }
  }
}

ExtendedOperation::Step MultiplyOperation::Execute(Machine& machine, Warp& /*warp*/, Split& split,
                                                   const Instruction& /*in*/,
                                                   uint32_t active) const {
  Frame& frame = *split.frame;
  MatrixWorkspace& work = MatrixWorkspace::OfThisThread();
  work.b_row.clear();
  if (problem.rule == MatrixRule::kDouble) {
    fragments.a.Gather(frame, a, &work.double_a);
    fragments.b.Gather(frame, b, &work.double_b);
    fragments.c.Gather(frame, c, &work.double_c);
    Multiply(problem, work);
    fragments.d.Scatter(machine, frame, d, work.double_c, active);
    return Step::kDone;
  }
  fragments.a.Gather(frame, a, &work.a);
  fragments.b.Gather(frame, b, &work.b);
  fragments.c.Gather(frame, c, &work.c);
  if (metadata.word != kNoRef) {
    ReadMetadata(problem.a, fragments.b.rows(), metadata.selector,
                 reinterpret_cast<const uint32_t*>(Machine::At(frame, metadata.word)), &work.b_row);
    if (problem.rule == MatrixRule::kConverted) SplitRows(problem.depth, work.b_row);
  }
  Multiply(problem, work);
  fragments.d.Scatter(machine, frame, d, work.d, active);
  return Step::kDone;
}

}  // namespace ops_debug::emulator
