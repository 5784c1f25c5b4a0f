// Calls, returns and exits of the lanes of a split.
#include <algorithm>
#include <cstring>

#include "emulator/machine.h"

namespace ops_debug::emulator {

// Arguments and results in .param space lie in the lane's local memory.
uint64_t Machine::ReadSlot(Warp& warp, Frame& frame, uint32_t lane, const Slot& slot) const {
  uint64_t value = 0;
  if (slot.is_register) {
    std::memcpy(&value, At(frame, slot.ref) + (static_cast<size_t>(lane) << slot.width),
                size_t{1} << slot.width);
  } else {
    std::memcpy(&value, LocalRow(warp, lane) + frame.local_base + slot.offset,
                slot.bytes < 8 ? slot.bytes : 8);
  }
  return value;
}

void Machine::WriteSlot(Warp& warp, Frame& frame, uint32_t lane, const Slot& slot, uint64_t value) {
  if (slot.is_register) {
    std::memcpy(At(frame, slot.ref) + (static_cast<size_t>(lane) << slot.width), &value,
                size_t{1} << slot.width);
  } else {
    std::memcpy(LocalRow(warp, lane) + frame.local_base + slot.offset, &value,
                slot.bytes < 8 ? slot.bytes : 8);
  }
}

bool Machine::Call(Warp& warp, Split& split, const Instruction& in) {
  const CallSite& site = *in.fn.call;
  Frame& caller = *split.frame;
  int64_t index = site.function;
  if (index < 0) {
    // Lanes may call different functions; those that call the first lane's go now.
    const auto* addresses = reinterpret_cast<const uint64_t*>(At(caller, site.address));
    const auto first = static_cast<uint32_t>(__builtin_ctz(split.lanes));
    uint32_t same = 0;
    for (uint32_t m = split.lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (addresses[lane] == addresses[first]) same |= 1u << lane;
    }
    const uint32_t others = split.lanes & ~same;
    if (others != 0) {
      AddSplit(warp, split, others, split.pc);
      split.lanes = same;
    }
    index = launch_.program->FunctionAt(addresses[first]);
    if (index < 0) {
      return Fail(
          LaunchError::Code::kInvalidProgramCounter, warp, first,
          "call of address " + std::to_string(addresses[first]) + ", where no function lies");
    }
  }
  const Function& callee = *launch_.program->functions[static_cast<size_t>(index)];
  const auto first = static_cast<uint32_t>(__builtin_ctz(split.lanes));
  if (!callee.has_body) {
    // The device run-time works on memory as it is; free() may take away what stores are bound for.
    if (weak_ != nullptr) weak_->Settle();
    if (!CallBuiltin(warp, split, callee, site)) return false;
    ++split.pc;
    return true;
  }
  const uint64_t local_base = caller.local_base + caller.function->local_bytes;
  uint64_t dynamic = 0;  // what alloca took of the other end
  for (uint32_t m = split.lanes; m != 0; m &= m - 1)
    dynamic = std::max(dynamic, warp.stack_bytes[__builtin_ctz(m)]);
  if (local_base + callee.local_bytes + dynamic > launch_.local_limit_bytes) {
    return Fail(LaunchError::Code::kIllegalAddress, warp, first,
                "stack overflow: the thread's " + std::to_string(launch_.local_limit_bytes) +
                    " bytes of local memory do not hold another call of " + callee.name);
  }
  Frame* const frame = TakeFrame(callee);
  frame->parent = &caller;
  frame->site = &site;
  frame->return_pc = split.pc + 1;
  frame->live = split.lanes;
  frame->depth = caller.depth + 1;
  frame->local_base = static_cast<uint32_t>(local_base);
  const size_t arguments = std::min(site.arguments.size(), callee.parameters.size());
  for (size_t i = 0; i < arguments; ++i) {
    const Slot& from = site.arguments[i];
    const Slot& to = callee.parameters[i];
    for (uint32_t m = split.lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (from.is_register || to.is_register) {
        WriteSlot(warp, *frame, lane, to, ReadSlot(warp, caller, lane, from));
        continue;
      }
      std::byte* const row = LocalRow(warp, lane);
      std::memcpy(row + frame->local_base + to.offset, row + caller.local_base + from.offset,
                  std::min(from.bytes, to.bytes));
    }
  }
  if (launch_.checks != nullptr) launch_.checks->Call(warp, caller, *frame, split.lanes);
  split.frame = frame;
  split.pc = 0;
  return true;
}

void Machine::Return(Warp& warp, Split& split) {
  Frame& frame = *split.frame;
  Frame& caller = *frame.parent;
  const CallSite& site = *frame.site;
  if (launch_.checks != nullptr) launch_.checks->Return(warp, frame, split.lanes);
  const size_t results = std::min(site.results.size(), frame.function->results.size());
  for (size_t i = 0; i < results; ++i) {
    const Slot& from = frame.function->results[i];
    const Slot& to = site.results[i];
    for (uint32_t m = split.lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (from.is_register || to.is_register) {
        WriteSlot(warp, caller, lane, to, ReadSlot(warp, frame, lane, from));
        continue;
      }
      std::byte* const row = LocalRow(warp, lane);
      std::memcpy(row + caller.local_base + to.offset, row + frame.local_base + from.offset,
                  std::min(from.bytes, to.bytes));
    }
  }
  split.frame = &caller;
  split.pc = frame.return_pc;
  ReleaseLanes(&frame, split.lanes);
}

void Machine::Exit(Warp& warp, Split& split, uint32_t lanes) {
  if (launch_.checks != nullptr) launch_.checks->Exit(warp, lanes);
  DropLanes(split.frame, lanes);
  warp.exited |= lanes;
  split.lanes &= ~lanes;
  if (split.lanes == 0) RemoveSplit(warp, split);
  CompleteWarpSync(warp);
  CheckAllBarriers(*warp.block);
  if (launch_.cluster_blocks > 1) CheckClusterBarrier(*warp.block->cluster);
}

}  // namespace ops_debug::emulator
