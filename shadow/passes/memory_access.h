// What a memory instruction touches: which operand is the address, how many bytes, in which state
// space, and what the hardware demands of it. Source: PTX ISA 9.0, section 9.7.9 (data movement)
// and 9.7.13 (atomics).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {

struct MemoryAccess {
  AccessKind kind = AccessKind::kLoad;
  AccessSpace space = AccessSpace::kGlobal;
  bool constant_space = false;  // .const: only symbol bounds can be checked
  uint32_t operand = 0;         // index of the address operand
  uint32_t bytes = 0;
  uint32_t alignment_bytes = 1;
  // ldmatrix and stmatrix: lanes below this number give addresses, and all lanes skip together. 0:
  // each lane for itself.
  uint32_t collective_lanes = 0;
  // cp.async: operand (a 32-bit register) that holds the bytes really read, 0 = none; none are read
  // if it is zero.
  uint32_t size_operand = 0;
  // With it: the byte at address + that operand - 1 is meant, not the one at address.
  bool last_byte = false;
  uint32_t copy_bytes = 0;  // with it: bytes of the instruction's full copy, what a report is about
  // cp.async: operand (a predicate) that suppresses the read, 0 = none.
  uint32_t ignore_operand = 0;
};

struct AccessDescription {
  std::vector<MemoryAccess> accesses;
  // Not empty: the instruction touches memory in a way that no check covers; why.
  std::string unchecked_reason;
};

// `function` holds the instruction; its register table tells operand types.
AccessDescription DescribeAccesses(const ptx::Function& function,
                                   const ptx::Instruction& instruction);

}  // namespace ops_debug::shadow
