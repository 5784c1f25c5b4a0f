// One function per family of instructions; everything that has an address operand and is in no
// family is reported as unchecked, so an instruction that a later PTX version adds is never taken
// for harmless.
#include "shadow/passes/memory_access.h"

#include <algorithm>
#include <array>

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

// Address operands of these neither fault nor read data.
constexpr std::array<std::string_view, 10> kHarmless = {
    "prefetch", "prefetchu", "discard",  "applypriority", "createpolicy",
    "mapa",     "cvta",      "isspacep", "call",          "getctarank"};

enum class SpaceName : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam, kCluster };

SpaceName SpaceOf(std::string_view modifier, SpaceName otherwise) {
  if (modifier == ".global") return SpaceName::kGlobal;
  if (modifier == ".shared" || modifier == ".shared::cta") return SpaceName::kShared;
  if (modifier == ".shared::cluster") return SpaceName::kCluster;
  if (modifier == ".local") return SpaceName::kLocal;
  if (modifier == ".const") return SpaceName::kConst;
  if (modifier.starts_with(".param")) return SpaceName::kParam;
  return otherwise;
}

SpaceName SpaceOf(const Instruction& instruction) {
  SpaceName space = SpaceName::kGeneric;
  for (std::string_view modifier : instruction.modifiers) space = SpaceOf(modifier, space);
  return space;
}

uint32_t VectorLength(const Instruction& instruction) {
  for (std::string_view modifier : instruction.modifiers) {
    if (modifier == ".v2") return 2;
    if (modifier == ".v4") return 4;
    if (modifier == ".v8") return 8;
  }
  return 1;
}

// Bytes of the last modifier that names a type: "ld.global.v4.f32" -> 4.
uint32_t ElementBytes(const Instruction& instruction) {
  for (auto it = instruction.modifiers.rbegin(); it != instruction.modifiers.rend(); ++it) {
    if (const uint32_t bytes = ptx::TypeSizeBytes(*it)) return bytes;
  }
  return 0;
}

bool IsPlainAddress(const Operand& operand) {
  return operand.IsAddress() && !operand.children.empty();
}

uint32_t FirstAddressOperand(const Instruction& instruction) {
  for (uint32_t i = 0; i < instruction.operands.size(); i++) {
    if (IsPlainAddress(instruction.operands[i])) return i;
  }
  return ~0u;
}

AccessSpace ToAccessSpace(SpaceName space) {
  switch (space) {
    case SpaceName::kGlobal:
      return AccessSpace::kGlobal;
    case SpaceName::kShared:
      return AccessSpace::kShared;
    case SpaceName::kLocal:
      return AccessSpace::kLocal;
    default:
      return AccessSpace::kGeneric;
  }
}

AccessDescription Unchecked(std::string reason) { return {{}, std::move(reason)}; }

// ld, ldu, st, atom, red: one address, element type times vector length.
AccessDescription DescribePlain(const Instruction& instruction, AccessKind kind) {
  const SpaceName space = SpaceOf(instruction);
  if (space == SpaceName::kParam) return {};
  if (space == SpaceName::kCluster) return Unchecked("distributed shared memory");
  const uint32_t operand = FirstAddressOperand(instruction);
  const uint32_t bytes = ElementBytes(instruction) * VectorLength(instruction);
  if (operand == ~0u || bytes == 0) return Unchecked("operand type not understood");
  MemoryAccess access;
  access.kind = kind;
  access.space = ToAccessSpace(space);
  access.constant_space = space == SpaceName::kConst;
  access.operand = operand;
  access.bytes = access.alignment_bytes = bytes;
  // 16-byte atomics of packed halves align to the element pair, vectors to the whole
  // (section 9.7.13.4).
  return {{access}, {}};
}

// cp.async [shared], [global], size {, source-size | ignore-source} {, cache-policy}
// (section 9.7.9.25.3.1). The three optional operands are told apart by type: integer or .b32,
// .pred, .b64.
AccessDescription DescribeAsyncCopy(const ptx::Function& function, const Instruction& instruction) {
  if (FirstAddressOperand(instruction) == ~0u) return {};  // commit_group, wait_group, wait_all
  if (instruction.Has(".bulk")) return Unchecked("bulk asynchronous copy");
  if (instruction.Has(".mbarrier")) return Unchecked("mbarrier");
  if (instruction.Has(".shared::cluster")) return Unchecked("distributed shared memory");
  if (instruction.operands.size() < 3 || !IsPlainAddress(instruction.operands[0]) ||
      !IsPlainAddress(instruction.operands[1]) || !instruction.operands[2].is_integer) {
    return Unchecked("copy operands not understood");
  }
  const auto bytes = static_cast<uint32_t>(instruction.operands[2].value);
  MemoryAccess write, read;
  write.kind = AccessKind::kStore;
  write.space = AccessSpace::kShared;
  write.operand = 0;
  write.bytes = write.alignment_bytes = bytes;
  read.kind = AccessKind::kLoad;
  read.space = AccessSpace::kGlobal;
  read.operand = 1;
  read.bytes = read.alignment_bytes = bytes;
  for (uint32_t i = 3; i < instruction.operands.size(); i++) {
    const Operand& operand = instruction.operands[i];
    if (operand.is_integer) {
      read.bytes = static_cast<uint32_t>(std::clamp<int64_t>(operand.value, 0, bytes));
    } else if (operand.IsRegister() && operand.reg != ptx::kNoRegister) {
      const std::string_view type = function.registers[operand.reg].type;
      if (type == ".pred") read.ignore_operand = i;
      if (ptx::TypeSizeBytes(type) == 4) read.size_operand = i;
    }
  }
  AccessDescription description{{write}, {}};
  if (read.size_operand != 0) {
    // The size is known at run time only: test the first byte, with the alignment, and the last.
    // The slow path then judges the copy as one.
    read.copy_bytes = bytes;
    read.bytes = 1;
    description.accesses.push_back(read);
    read.alignment_bytes = 1;
    read.last_byte = true;
  }
  if (read.bytes > 0) description.accesses.push_back(read);
  return description;
}

// Each of the first 8, 16 or 32 lanes names a row of 16 bytes in shared memory
// (section 9.7.14.5.15).
AccessDescription DescribeMatrix(const Instruction& instruction, AccessKind kind) {
  const SpaceName space = SpaceOf(instruction);
  if (space != SpaceName::kShared || !instruction.Has(".m8n8"))
    return Unchecked("matrix access of this shape");
  MemoryAccess access;
  access.kind = kind;
  access.space = AccessSpace::kShared;
  access.operand = FirstAddressOperand(instruction);
  access.bytes = access.alignment_bytes = 16;
  access.collective_lanes = instruction.Has(".x4") ? 32 : instruction.Has(".x2") ? 16 : 8;
  if (access.operand == ~0u) return Unchecked("operand type not understood");
  return {{access}, {}};
}

}  // namespace

AccessDescription DescribeAccesses(const ptx::Function& function, const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  if (opcode == "ld" || opcode == "ldu") return DescribePlain(instruction, AccessKind::kLoad);
  if (opcode == "st") {
    if (instruction.Has(".async")) return Unchecked("asynchronous store");
    return DescribePlain(instruction, AccessKind::kStore);
  }
  if (opcode == "atom") return DescribePlain(instruction, AccessKind::kAtomic);
  if (opcode == "red") {
    if (instruction.Has(".async")) return Unchecked("asynchronous reduction");
    return DescribePlain(instruction, AccessKind::kAtomic);
  }
  if (opcode == "ldmatrix") return DescribeMatrix(instruction, AccessKind::kLoad);
  if (opcode == "stmatrix") return DescribeMatrix(instruction, AccessKind::kStore);
  if (opcode == "cp") return DescribeAsyncCopy(function, instruction);
  if (opcode == "mbarrier") return Unchecked("mbarrier");
  if (opcode == "wgmma" && instruction.Has(".mma_async"))
    return Unchecked("warpgroup matrix operand in shared memory");
  if (std::find(kHarmless.begin(), kHarmless.end(), opcode) != kHarmless.end()) return {};
  if (FirstAddressOperand(instruction) != ~0u) return Unchecked("no check for this instruction");
  return {};
}

}  // namespace ops_debug::shadow
