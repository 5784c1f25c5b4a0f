// See race_remedy.h.
#include "emulator/checks/race_remedy.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "ptx/cfg.h"

namespace ops_debug::emulator {
namespace {

using ptx::BlockId;

class Gaps {
 public:
  Gaps(const ptx::Function& function, const ptx::ControlFlow& flow, bool within_warp)
      : function_(function), flow_(flow), within_warp_(within_warp) {
    for (uint32_t i = 0; i < function.body.size(); ++i) {
      if (!IsBarrier(i) || !flow.IsReachable(flow.BlockOf(i))) continue;
      const BlockId block = flow.BlockOf(i);
      if (barrier_blocks_.empty() || barrier_blocks_.back() != block)
        barrier_blocks_.push_back(block);
    }
  }

  // Whether there is a path from `from` to `to` without a barrier, and a place on all such paths
  // where one may stand.
  bool HasGap(uint32_t from, uint32_t to) const {
    if (!Reaches(from, to, kNone)) return false;
    for (BlockId block = 0; block < flow_.blocks().size(); ++block) {
      if (!flow_.IsReachable(block) || !AllThreadsPass(block)) continue;
      // In the block of an access there is room behind or before it.
      if (block == flow_.BlockOf(from) || block == flow_.BlockOf(to)) return true;
      if (!Reaches(from, to, block)) return true;
    }
    return false;
  }
  bool Reaches(uint32_t from, uint32_t to) const { return Reaches(from, to, kNone); }

 private:
  static constexpr BlockId kNone = ~BlockId{0};

  bool IsBarrier(uint32_t statement) const {
    const auto* const in = std::get_if<ptx::Instruction>(&function_.body[statement]);
    if (in == nullptr || in->guard.Present()) return false;
    const bool of_warp = in->Has(".warp");
    if (in->Is("bar") || in->Is("barrier")) {
      if (in->Has(".cluster")) return true;
      return of_warp ? within_warp_ : !in->Has(".arrive");
    }
    return false;
  }

  // Paths that do not go through `without`.
  bool Reaches(uint32_t from, uint32_t to, BlockId without) const {
    std::vector<bool> seen(flow_.blocks().size());
    std::vector<BlockId> open;
    // True if `to` is found before a barrier; goes on to the successors if there is none.
    const auto scan = [&](BlockId block, uint32_t begin) {
      for (uint32_t i = begin; i < flow_.blocks()[block].end; ++i) {
        if (i == to) return true;
        if (IsBarrier(i)) return false;
      }
      for (const BlockId next : flow_.blocks()[block].successors) {
        if (next == without || seen[next]) continue;
        seen[next] = true;
        open.push_back(next);
      }
      return false;
    };
    if (scan(flow_.BlockOf(from), from + 1)) return true;
    while (!open.empty()) {
      const BlockId block = open.back();
      open.pop_back();
      if (scan(block, flow_.blocks()[block].begin)) return true;
    }
    return false;
  }

  bool IsInLoop(BlockId block) const {
    std::vector<bool> seen(flow_.blocks().size());
    std::vector<BlockId> open(flow_.blocks()[block].successors);
    while (!open.empty()) {
      const BlockId next = open.back();
      open.pop_back();
      if (next == block) return true;
      if (seen[next]) continue;
      seen[next] = true;
      open.insert(open.end(), flow_.blocks()[next].successors.begin(),
                  flow_.blocks()[next].successors.end());
    }
    return false;
  }

  bool AllThreadsPass(BlockId block) const {
    for (const BlockId barrier : barrier_blocks_) {
      if ((flow_.Dominates(barrier, block) && flow_.PostDominates(block, barrier)) ||
          (flow_.Dominates(block, barrier) && flow_.PostDominates(barrier, block)))
        return true;
    }
    return flow_.PostDominates(block, 0) && !IsInLoop(block);
  }

  const ptx::Function& function_;
  const ptx::ControlFlow& flow_;
  const bool within_warp_;
  std::vector<BlockId> barrier_blocks_;
};

std::optional<uint32_t> StatementAt(const ptx::Function& function, const Site& site) {
  for (uint32_t i = 0; i < function.body.size(); ++i) {
    const auto* const in = std::get_if<ptx::Instruction>(&function.body[i]);
    if (in != nullptr && in->position.line == site.ptx_line &&
        in->position.column == site.ptx_column)
      return i;
  }
  return std::nullopt;
}

bool SameLine(const SourceLine& a, const SourceLine& b) {
  return a.line == b.line && a.file == b.file;
}

// The lines of the two sites in the function that both are inlined into.
Remedy Between(const Site& after, const Site& before) {
  auto a = after.frames.rbegin(), b = before.frames.rbegin();
  for (; a != after.frames.rend() && b != before.frames.rend(); ++a, ++b) {
    if (SameLine(*a, *b)) continue;
    return a->file == b->file ? Remedy{*a, *b} : Remedy{};
  }
  return {};
}

}  // namespace

Remedy FindRemedy(const ptx::Function& function, const Site& first, const Site& second,
                  bool within_warp) {
  const auto a = StatementAt(function, first), b = StatementAt(function, second);
  auto flow = ptx::ControlFlow::Build(function);
  if (!a || !b || !flow.ok()) return {};
  const Gaps gaps(function, *flow, within_warp);
  // In the order of the code first: the way back through a loop comes second.
  const bool forward = *a <= *b;
  const uint32_t early = forward ? *a : *b, late = forward ? *b : *a;
  const Site& early_site = forward ? first : second;
  const Site& late_site = forward ? second : first;
  if (gaps.Reaches(early, late))
    return gaps.HasGap(early, late) ? Between(early_site, late_site) : Remedy{};
  return gaps.HasGap(late, early) ? Between(late_site, early_site) : Remedy{};
}

}  // namespace ops_debug::emulator
