// The instructions whose first operand is not simply the destination (PTX ISA 9.0, chapter 9).
#include "ptx/operands.h"

#include <algorithm>
#include <iterator>

namespace ops_debug::ptx {
namespace {

struct Unusual {
  std::string_view opcode;
  DestinationShape (*shape)(const Instruction&);
};

DestinationShape Nothing(const Instruction&) { return {0, false}; }

// bar.sync reads the barrier number; bar.red.popc.u32 d, a, p has a result.
DestinationShape Barrier(const Instruction& instruction) {
  return {instruction.Has(".red"), false};
}

// call (result), function, (arguments): only a leading list is a result.
DestinationShape Call(const Instruction& instruction) {
  const bool has_result = !instruction.operands.empty() &&
                          instruction.operands[0].kind == Operand::Kind::kList &&
                          instruction.operands.size() > 1;
  return {has_result, false};
}

// wgmma.mma_async accumulates into its first operand; the fences have none.
DestinationShape WarpGroupMma(const Instruction& instruction) {
  return {instruction.Has(".mma_async"), true};
}

// tcgen05.dealloc takes values only; tcgen05.ld.red d, reduced, [address] has two results.
DestinationShape Tcgen05(const Instruction& instruction) {
  if (!instruction.Has(".ld")) return {0, false};
  return {static_cast<uint8_t>(instruction.Has(".red") ? 2 : 1), false};
}

// Sorted by name.
constexpr Unusual kUnusual[] = {
    {"applypriority", Nothing},
    {"bar", Barrier},
    {"barrier", Barrier},
    {"bra", Nothing},
    {"brkpt", Nothing},
    {"brx", Nothing},
    {"call", Call},
    {"cp", Nothing},
    {"discard", Nothing},
    {"exit", Nothing},
    {"fence", Nothing},
    {"griddepcontrol", Nothing},
    {"membar", Nothing},
    {"nanosleep", Nothing},
    {"pmevent", Nothing},
    {"prefetch", Nothing},
    {"prefetchu", Nothing},
    {"red", Nothing},
    {"ret", Nothing},
    {"setmaxnreg", Nothing},
    {"st", Nothing},
    {"stackrestore", Nothing},
    {"stmatrix", Nothing},
    {"sured", Nothing},
    {"sust", Nothing},
    {"tcgen05", Tcgen05},
    {"tensormap", Nothing},
    {"trap", Nothing},
    {"wgmma", WarpGroupMma},
};

bool HasPart(const Operand& destination, RegisterId reg) {
  if (destination.kind == Operand::Kind::kSelector) return destination.children[0].reg == reg;
  if (destination.kind != Operand::Kind::kVector && destination.kind != Operand::Kind::kPair)
    return false;
  for (const Operand& child : destination.children) {
    if (HasPart(child, reg)) return true;
  }
  return false;
}

}  // namespace

DestinationShape DestinationsOf(const Instruction& instruction) {
  const auto* found = std::lower_bound(
      std::begin(kUnusual), std::end(kUnusual), instruction.opcode,
      [](const Unusual& entry, std::string_view name) { return entry.opcode < name; });
  if (found != std::end(kUnusual) && found->opcode == instruction.opcode)
    return found->shape(instruction);
  return {};
}

bool WritesPart(const Instruction& instruction, RegisterId reg) {
  const DestinationShape shape = DestinationsOf(instruction);
  for (size_t i = 0; i < instruction.operands.size() && i < shape.written; ++i) {
    if (HasPart(instruction.operands[i], reg)) return true;
  }
  return false;
}

}  // namespace ops_debug::ptx
