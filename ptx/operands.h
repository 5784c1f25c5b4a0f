// Which registers an instruction reads and writes.
//
// PTX is regular: the first operand is the destination unless it is an address. Only the
// instructions that break this rule are in a table (operands.cc), so an instruction that no table
// knows still gets the right answer in practice.
#pragma once

#include <cstdint>

#include "ptx/ir.h"

namespace ops_debug::ptx {

// How the leading operands are used. Addresses among them are read in any case.
struct DestinationShape {
  uint8_t written = 1;     // number of leading operands that are written
  bool also_read = false;  // they hold an input too (wgmma accumulators)
};

DestinationShape DestinationsOf(const Instruction& instruction);

// True if the instruction leaves some of the register's old value in place (a destination such as
// %v.x).
bool WritesPart(const Instruction& instruction, RegisterId reg);

namespace internal {

template <class Callback>
void ForEachRead(const Operand& operand, Callback& callback) {
  if (operand.kind == Operand::Kind::kRegister) callback(operand.reg, false);
  for (const Operand& child : operand.children) ForEachRead(child, callback);
}

// What a destination operand reads: address registers and, where only a part is written, the rest
// of the register.
template <class Callback>
void ForEachReadOfDestination(const Operand& operand, Callback& callback) {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      break;
    case Operand::Kind::kVector:
    case Operand::Kind::kPair:
    case Operand::Kind::kList:
      for (const Operand& child : operand.children) ForEachReadOfDestination(child, callback);
      break;
    default:
      ForEachRead(operand, callback);
  }
}

template <class Callback>
void ForEachWrite(const Operand& operand, Callback& callback) {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      callback(operand.reg, true);
      break;
    case Operand::Kind::kVector:
    case Operand::Kind::kPair:
    case Operand::Kind::kList:
    case Operand::Kind::kSelector:
      for (const Operand& child : operand.children) ForEachWrite(child, callback);
      break;
    default:
      break;
  }
}

}  // namespace internal

// Calls callback(RegisterId, bool is_write): the guard, then all reads, then all writes. A register
// that is used twice comes twice. A write to a part (%v.x) comes as a read and a write.
template <class Callback>
void ForEachRegister(const Instruction& instruction, Callback&& callback) {
  if (instruction.guard.Present()) callback(instruction.guard.reg, false);
  const DestinationShape shape = DestinationsOf(instruction);
  for (size_t i = 0; i < instruction.operands.size(); ++i) {
    if (i < shape.written && !shape.also_read) {
      internal::ForEachReadOfDestination(instruction.operands[i], callback);
    } else {
      internal::ForEachRead(instruction.operands[i], callback);
    }
  }
  for (size_t i = 0; i < instruction.operands.size() && i < shape.written; ++i) {
    internal::ForEachWrite(instruction.operands[i], callback);
  }
}

}  // namespace ops_debug::ptx
