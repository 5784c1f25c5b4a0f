// wgmma: descriptors of matrices in shared memory, the multiplication and the wait for a warpgroup.
#include "emulator/matrix_warpgroup.h"

#include <bit>
#include <cstring>

#include "emulator/checks/async_order.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kWarpRows = 16;
constexpr uint32_t kGroupWarps = 4;
constexpr uint32_t kChunkBytes = 16;
constexpr uint32_t kCoreRows = 8;
// Multiplications whose reads are remembered: more than can be open.
constexpr size_t kKeptReads = 256;

}  // namespace

MatrixDescriptor::MatrixDescriptor(uint64_t bits)
    : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
      leading(static_cast<uint32_t>((bits >> 16) & 0x3fff) << 4),
      stride(static_cast<uint32_t>((bits >> 32) & 0x3fff) << 4),
      base_offset(static_cast<uint32_t>((bits >> 49) & 7)),
      swizzle_bits((4 - static_cast<uint32_t>(bits >> 62)) & 3) {}

uint32_t MatrixDescriptor::AddressOf(uint32_t outer, uint32_t chunk, bool k_major) const {
  const uint32_t core = outer / kCoreRows;
  const uint32_t row = outer % kCoreRows;
  if (swizzle_bits == 0) {
    // Core matrices are 128 bytes in a row. The leading offset steps along the depth.
    return start + row * kChunkBytes +
           (k_major ? core * stride + chunk * leading : core * leading + chunk * stride);
  }
  const uint32_t chunks = 1u << swizzle_bits;  // of a line of the pattern
  const uint32_t address = start + core * stride + row * chunks * kChunkBytes +
                           chunk / chunks * leading + chunk % chunks * kChunkBytes;
  const uint32_t phase = ((address >> 7) - base_offset) & (chunks - 1);
  return address ^ (phase << 4);
}

// Element (row, k) of a goes to row * depth + k, element (k, column) of b to k * columns + column.
bool WarpgroupMultiply::ReadShared(Machine& machine, Warp& warp, Frame& frame, uint32_t lane,
                                   bool is_a, std::vector<uint32_t>* bits,
                                   const AgentWork* work) const {
  uint64_t raw;
  std::memcpy(&raw, Machine::At(frame, is_a ? a_descriptor : b_descriptor) + lane * sizeof(raw),
              sizeof(raw));
  const MatrixDescriptor descriptor(raw);
  const bool k_major = is_a ? a_k_major : b_k_major;
  const uint32_t depth = is_a ? problem.depth : b_depth;
  const uint32_t width = BitsOf(is_a ? problem.a : problem.b);
  const uint32_t per_chunk = 8 * kChunkBytes / width;
  const uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
  const uint32_t first_row = is_a ? warp.index % kGroupWarps * kWarpRows : 0;
  const uint32_t rows = is_a ? kWarpRows : problem.columns;
  const uint32_t k_step = is_a ? 1 : problem.columns;
  const uint32_t row_step = is_a ? depth : 1;
  const uint32_t outer_step = k_major ? row_step : k_step;
  const uint32_t inner_step = k_major ? k_step : row_step;
  const uint32_t first_outer = k_major ? first_row : 0;
  const uint32_t first_chunk = k_major ? 0 : first_row / per_chunk;
  const uint32_t outers = k_major ? rows : depth;
  const uint32_t chunks = (k_major ? depth : rows) / per_chunk;
  bits->resize(static_cast<size_t>(rows) * depth);
  for (uint32_t outer = 0; outer < outers; ++outer) {
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t address =
          descriptor.AddressOf(first_outer + outer, first_chunk + chunk, k_major);
      const std::byte* const source =
          machine.ResolveLane(warp, Space::kShared, address, lane, kChunkBytes, false);
      if (source == nullptr) {
        return machine.FailAccess(warp, Space::kShared, address, lane, kChunkBytes);
      }
      if (work != nullptr)
        machine.launch().checks->async()->ReadOperand(*work, source, kChunkBytes);
      uint32_t words[kChunkBytes / 4];
      std::memcpy(words, source, kChunkBytes);
      uint32_t* out = bits->data() + static_cast<size_t>(outer) * outer_step +
                      static_cast<size_t>(chunk) * per_chunk * inner_step;
      for (uint32_t word : words) {
        for (uint32_t used = 0; used < 32; used += width) {
          *out = word & mask;
          out += inner_step;
          if (width < 32) word >>= width;
        }
      }
    }
  }
  return true;
}

ExtendedOperation::Step WarpgroupMultiply::Execute(Machine& machine, Warp& warp, Split& split,
                                                   const Instruction& /*in*/,
                                                   uint32_t active) const {
  Frame& frame = *split.frame;
  const auto lane = static_cast<uint32_t>(std::countr_zero(active));
  MatrixWorkspace& work = MatrixWorkspace::OfThisThread();
  const LaunchChecks* const checks = machine.launch().checks;
  AsyncOrder* const order = checks == nullptr ? nullptr : checks->async();
  AgentWork reads;
  if (order != nullptr) reads = order->StartOperands(warp, active);
  const AgentWork* const told = order == nullptr ? nullptr : &reads;
  work.b_row.clear();
  if (!a.empty()) {
    fragments.a.Gather(frame, a, &work.a);
  } else if (!ReadShared(machine, warp, frame, lane, true, &work.a, told)) {
    return Step::kFault;
  }
  if (!ReadShared(machine, warp, frame, lane, false, &work.b, told)) return Step::kFault;
  if (((Machine::PredicateAt(frame, scale_d) >> lane) & 1) != 0) {
    fragments.c.Gather(frame, d, &work.c);
  } else {
    work.c.assign(fragments.c.size(), 0);
  }
  if (metadata.word != kNoRef) {
    ReadMetadata(problem.a, b_depth, metadata.selector,
                 reinterpret_cast<const uint32_t*>(Machine::At(frame, metadata.word)), &work.b_row);
  }
  Multiply(problem, work);
  fragments.d.Scatter(machine, frame, d, work.d, active);
  ++warp.warpgroup.issued;
  if (order != nullptr) warp.warpgroup.reads.emplace_back(warp.warpgroup.issued, reads);
  return Step::kDone;
}

ExtendedOperation::Step WarpgroupCommit::Execute(Machine& /*machine*/, Warp& warp, Split& /*split*/,
                                                 const Instruction& /*in*/,
                                                 uint32_t /*active*/) const {
  warp.warpgroup.committed.push_back(warp.warpgroup.issued);
  return Step::kDone;
}

uint64_t WarpgroupWait::Needed(const Warp& warp) const {
  const std::vector<uint64_t>& committed = warp.warpgroup.committed;
  return committed.size() <= allowed_ ? 0 : committed[committed.size() - 1 - allowed_];
}

const Warp* WarpgroupWait::Late(const Warp& warp) const {
  const uint64_t needed = Needed(warp);
  const auto& warps = warp.block->warps;
  const uint32_t first = warp.index / kGroupWarps * kGroupWarps;
  for (uint32_t i = first; i < first + kGroupWarps && i < warps.size(); ++i) {
    const Warp& other = *warps[i];
    if (other.gone() != kAllLanes && other.warpgroup.issued < needed) return &other;
  }
  return nullptr;
}

// The multiplications are the whole group's: whoever has waited knows that all four warps have
// read.
void WarpgroupWait::TellDone(AsyncOrder& order, Warp& warp, uint32_t lanes) const {
  const uint64_t needed = Needed(warp);
  const auto& warps = warp.block->warps;
  const uint32_t first = warp.index / kGroupWarps * kGroupWarps;
  for (uint32_t i = first; i < first + kGroupWarps && i < warps.size(); ++i) {
    auto& reads = warps[i]->warpgroup.reads;
    const AgentWork* latest = nullptr;  // tells of all before it
    for (size_t at = reads.size(); at > 0 && latest == nullptr; --at) {
      if (reads[at - 1].first <= needed) latest = &reads[at - 1].second;
    }
    if (latest != nullptr) order.FinishOperands(*latest, warp, lanes);
  }
  auto& own = warp.warpgroup.reads;
  // The others may still ask for the last one.
  while (own.size() > kKeptReads) own.erase(own.begin());
}

ExtendedOperation::Step WarpgroupWait::Execute(Machine& machine, Warp& warp, Split& /*split*/,
                                               const Instruction& /*in*/, uint32_t active) const {
  if (Late(warp) != nullptr) return Step::kWait;
  const LaunchChecks* const checks = machine.launch().checks;
  if (checks != nullptr && checks->async() != nullptr) TellDone(*checks->async(), warp, active);
  std::vector<uint64_t>& committed = warp.warpgroup.committed;
  if (committed.size() > allowed_) {
    committed.erase(committed.begin(), committed.end() - static_cast<ptrdiff_t>(allowed_));
  }
  return Step::kDone;
}

bool WarpgroupWait::Ready(const Machine& /*machine*/, const Warp& warp,
                          const Split& /*split*/) const {
  return Late(warp) == nullptr;
}

std::string WarpgroupWait::WaitsFor(const Machine& /*machine*/, const Warp& warp,
                                    const Split& /*split*/) const {
  const Warp* const late = Late(warp);
  if (late == nullptr) return "nothing";
  return "warp " + std::to_string(late->index) + " of its warpgroup, which has executed " +
         std::to_string(late->warpgroup.issued) + " of " + std::to_string(Needed(warp)) +
         " wgmma.mma_async";
}

}  // namespace ops_debug::emulator
