// Scopes other than the block's are one here: a cell tells blocks apart, not clusters.
#include "shadow/passes/synchronisation.h"

#include "shadow/abi/race_abi.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

bool IsShared(const Instruction& instruction) {
  return instruction.Has(".shared") || instruction.Has(".shared::cta");
}

bool IsVolatile(const Instruction& instruction) {
  return instruction.Has(".volatile") || instruction.Has(".mmio");
}

bool IsBlockScope(const Instruction& instruction) { return instruction.Has(".cta"); }

}  // namespace

BarrierUse DescribeBarrier(const Instruction& instruction) {
  BarrierUse use;
  if (!instruction.Is("bar") && !instruction.Is("barrier")) return use;
  if (instruction.Has(".cluster")) return use;
  const size_t operands = instruction.operands.size();
  if (instruction.Has(".warp")) {
    use.kind = Barrier::kWarp;
    return use;
  }
  if (instruction.Has(".arrive")) {
    use.kind = Barrier::kNamedOnly;
    use.count_operand = 1;
    return use;
  }
  // bar.red: destination, barrier {, count}, predicate
  const uint32_t id = instruction.Has(".red") ? 1 : 0;
  const size_t without_count = instruction.Has(".red") ? 3 : 1;
  use.kind = operands > without_count ? Barrier::kNamed : Barrier::kBlock;
  use.id_operand = id;
  use.count_operand = id + 1;
  return use;
}

int MaskOperandOf(const Instruction& instruction) {
  if (!instruction.Has(".sync") || instruction.operands.empty()) return -1;
  constexpr std::string_view kMasked[] = {"shfl", "vote", "match", "redux"};
  for (std::string_view name : kMasked) {
    if (instruction.Is(name)) return static_cast<int>(instruction.operands.size()) - 1;
  }
  if (instruction.Is("elect")) return static_cast<int>(instruction.operands.size()) - 1;
  return DescribeBarrier(instruction).kind == Barrier::kWarp ? 0 : -1;
}

uint32_t StrengthOf(const Instruction& instruction) {
  const bool atomic = instruction.Is("atom") || instruction.Is("red");
  const bool strong = atomic || IsVolatile(instruction) || instruction.Has(".relaxed") ||
                      instruction.Has(".acquire") || instruction.Has(".release");
  if (!strong) return kWriteWeak;
  return IsBlockScope(instruction) ? kWriteStrongBlock : kWriteStrong;
}

uint32_t DescribeOrder(const Instruction& instruction) {
  const uint32_t wide = IsBlockScope(instruction) ? 0 : kOrderWide;
  if (instruction.Is("membar") || instruction.Is("fence")) {
    if (instruction.Has(".proxy") || instruction.Has(".proxy.async")) return 0;
    for (std::string_view modifier : instruction.modifiers) {
      if (modifier.starts_with(".proxy") || modifier.starts_with(".mbarrier_init")) return 0;
    }
    return kOrderFence | wide;
  }
  if (instruction.Is("mbarrier")) {
    const uint32_t scope = instruction.Has(".cluster") ? kOrderWide : 0;
    if (instruction.Has(".test_wait") || instruction.Has(".try_wait")) return kOrderAcquire | scope;
    if (instruction.Has(".arrive") || instruction.Has(".arrive_drop") ||
        instruction.Has(".complete_tx"))
      return kOrderRelease | scope;
    return 0;
  }
  if (instruction.Is("barrier") && instruction.Has(".cluster")) {
    if (instruction.Has(".wait")) return kOrderAcquire | kOrderWide;
    return kOrderRelease | kOrderWide;
  }
  // The mbarrier's phase vouches for the copies before it.
  if (instruction.Is("cp"))
    return instruction.Has(".mbarrier") && instruction.Has(".arrive") ? kOrderRelease : 0;
  uint32_t order = 0;
  if (instruction.Has(".acquire") || instruction.Has(".acq_rel")) order |= kOrderAcquire;
  if (instruction.Has(".release") || instruction.Has(".acq_rel")) order |= kOrderRelease;
  if (instruction.Is("atom")) order |= kOrderStrongRead | kOrderStrongWrite;
  if (instruction.Is("red")) order |= kOrderStrongWrite;
  if (StrengthOf(instruction) != kWriteWeak) {
    if (instruction.Is("ld")) order |= kOrderStrongRead;
    if (instruction.Is("st")) order |= kOrderStrongWrite;
  }
  if (order == 0) return 0;
  // Shared memory is the block's own, whatever the scope says.
  return order | (IsShared(instruction) ? 0 : wide);
}

}  // namespace ops_debug::shadow
