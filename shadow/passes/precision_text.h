// PTX text of the tests for numerical faults: the inline test of a group of instructions, the slow
// blocks that find out which of them it was, and the measurement of one instruction.
//
// Scratch registers have fixed names starting with %odsn; PTX registers are virtual, so sharing
// them costs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/numeric_instruction.h"

namespace ops_debug::shadow {

// One instruction that is to be tested. Registers are those that hold the values where the test
// stands, which may be copies.
struct NumericTest {
  NumericInstruction what;  // its operands are not used: these are
  uint32_t site = 0;
  std::vector<ptx::Operand> results;   // one, none, or the elements of a matrix fragment
  std::vector<ptx::Operand> operands;  // a, b, c; of a matrix instruction the elements of c
  std::vector<ptx::Operand> factors;   // registers of A and B of a matrix instruction
  ptx::Operand guard;                  // kSink: unconditional
  bool guard_negated = false;
  // Whether the result is infinite or NaN is seen at a later instruction of the same group.
  bool seen_later = false;
  // Operand that is an accumulator which may stand still; -1: none.
  int accumulator = -1;

  bool Guarded() const { return guard.kind == ptx::Operand::Kind::kRegister; }
};

// Declarations of the scratch registers.
std::string PrecisionScratchText();

class PrecisionText {
 public:
  explicit PrecisionText(const ptx::Function& function) : function_(function) {}

  // Sets %odsnp in every thread in which one of the instructions may be worth a look; in all lanes
  // of a warp if one of them is a matrix instruction.
  std::string GroupTest(std::span<const NumericTest> tests, TextArguments* arguments) const;
  // Calls __ops_debug_numeric if this one is. `unique` makes its labels unique.
  std::string SlowTest(const NumericTest& test, const std::string& unique,
                       TextArguments* arguments) const;
  // Calls __ops_debug_numeric_trace.
  std::string Measure(const NumericTest& test, NumericKind kind, const std::string& unique,
                      TextArguments* arguments) const;

 private:
  struct Term;

  std::vector<Term> Terms(const NumericTest& test, TextArguments* arguments) const;
  Term Exceptional(const ptx::Operand& value, NumericType type, bool packed,
                   TextArguments* arguments) const;
  void AddNanTerms(const NumericTest& test, TextArguments* arguments,
                   std::vector<Term>* terms) const;
  void AddConversionTerms(const NumericTest& test, TextArguments* arguments,
                          std::vector<Term>* terms) const;
  void AddUnderflowTerm(const NumericTest& test, TextArguments* arguments,
                        std::vector<Term>* terms) const;
  void AddStagnationTerms(const NumericTest& test, TextArguments* arguments,
                          std::vector<Term>* terms) const;
  std::string Bits(const ptx::Operand* operand, const NumericInstruction& what,
                   const std::string& target, TextArguments* arguments) const;
  std::string Call(const NumericTest& test, const ptx::Operand* c, const ptx::Operand* result,
                   TextArguments* arguments) const;
  std::string SlowMatrixTest(const NumericTest& test, const std::string& unique,
                             TextArguments* arguments) const;

  const ptx::Function& function_;
};

}  // namespace ops_debug::shadow
