// Which 32-bit arithmetic ends in an address, and where: the slice of add, sub, mul, mad, shl and
// what only passes values on, backward from each access over 64-bit address arithmetic to the
// widening (cvt.s64.s32, mul.wide.s32, ...) of a 32-bit register, and on over 32-bit arithmetic to
// its leaves. Addition and multiplication modulo 2^32 agree with those of integers as long as
// nothing wraps, so a 64-bit copy of the slice tells the exact value of every register in it.
//
// Where bits are taken apart (and, xor, shr, rem, div, mul.hi, ...) the slice is cut, and what
// comes out is a leaf: hashes, random numbers and remainders wrap by intention. So is what is made
// of a value and of something cut out of the same value: x - x / 7 * 7 is a remainder.
//
// Registers that cannot wrap, by intervals of their leaves (%tid is below 1024), are leaves, too.
// PTX is not in SSA form: a register is in the slice with all its definitions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/ir.h"

namespace ops_debug::shadow {

// A 32-bit register of the slice becomes part of a 64-bit address.
struct Widening {
  uint32_t statement = 0;
  ptx::RegisterId reg = ptx::kNoRegister;
  bool is_signed = false;
  // The last arithmetic that the value comes from, if there is only one.
  std::optional<uint32_t> made_by;
};

class IndexSlices {
 public:
  // Of a function that nothing was added to yet. Statements are indexes into its body.
  explicit IndexSlices(const ptx::Function& function);

  // How a definition of a register of the slice gives the exact value.
  enum class Step : uint8_t {
    kLeaf,  // whatever it writes is exact
    kCopy,  // mov
    kAdd,   // and the rest: as the instruction is called
    kSubtract,
    kMultiply,
    kMultiplyAdd,
    kShiftLeft,
    kNegate,
    kNot,
    kSelect,    // selp
    kExtremum,  // min, max: one of the operands
    kOr,        // with a constant: it adds bits that are clear
  };

  const std::vector<Widening>& widenings() const { return widenings_; }
  // Indexes into widenings() by the statement of the access whose address they end in.
  const std::map<uint32_t, std::vector<uint32_t>>& accesses() const { return accesses_; }
  const std::set<ptx::RegisterId>& registers() const { return registers_; }
  // Of the definition of a register of the slice by this statement.
  Step StepOf(uint32_t statement) const { return steps_[statement].value_or(Step::kLeaf); }
  // False: it is negative for some values of its leaves, or not known.
  bool IsNeverNegative(const ptx::Operand& operand) const;
  // Statements of one basic block have one number.
  uint32_t BlockOf(uint32_t statement) const { return flow_->BlockOf(statement); }

 private:
  struct Interval {
    int64_t low = 0, high = 0;
  };

  const ptx::Instruction* At(uint32_t statement) const;
  bool IsNarrow(const ptx::Operand& operand) const;
  Step Classify(uint32_t statement);
  Step StepBy(const ptx::Instruction& instruction) const;
  bool IsRemainder(const ptx::Instruction& instruction) const;
  bool IsCutFrom(ptx::RegisterId value, ptx::RegisterId from) const;
  std::optional<Interval> IntervalOf(const ptx::Operand& operand, int depth) const;
  std::optional<Interval> IntervalOf(const ptx::Instruction& definition, int depth) const;
  bool CanWrap(ptx::RegisterId reg);
  void FindAddresses();
  void FollowAddress(uint32_t statement, ptx::RegisterId reg, std::set<uint32_t>* found);
  void Widen(uint32_t statement, const ptx::Operand& operand, bool is_signed,
             std::set<uint32_t>* found);
  void Close(ptx::RegisterId reg);
  std::optional<uint32_t> Maker(uint32_t statement, ptx::RegisterId reg);

  const ptx::Function& function_;
  std::optional<ptx::ControlFlow> flow_;
  std::optional<ptx::DefUse> values_;
  std::vector<std::vector<uint32_t>> definitions_;  // statements, by register
  std::vector<std::optional<Step>> steps_;          // by statement, as far as they were asked for
  std::map<ptx::RegisterId, bool> can_wrap_;
  std::vector<Widening> widenings_;
  std::map<std::pair<uint32_t, ptx::RegisterId>, uint32_t> widening_index_;
  std::map<uint32_t, std::vector<uint32_t>> accesses_;
  std::set<ptx::RegisterId> registers_;
};

// Operands that hold values, behind the destination.
std::span<const ptx::Operand> Sources(const ptx::Instruction& instruction);

}  // namespace ops_debug::shadow
