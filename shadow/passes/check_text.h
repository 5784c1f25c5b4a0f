// PTX text of the checks: the inline tests of a group of accesses and the slow path of one.
//
// Scratch registers have fixed names starting with %ods; PTX registers are virtual, so sharing them
// costs nothing. Texts name the program's own operands as #0, #1... (ptx::ParseStatements), because
// a register of a nested block has no name that is unique.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/provenance.h"

namespace ops_debug::shadow {

enum class Test : uint8_t {
  kNone,         // proved in bounds here
  kStaticFault,  // proved out of bounds here
  kParameter,    // bounds from the launch parameter
  kSymbol,  // bounds of a declared array, or of the block's shared memory if the array is not known
  kShadow,  // shadow memory
};

// How one access is tested.
struct Decision {
  Test test = Test::kShadow;
  Value value;                  // of the address
  uint32_t slot = 0;            // kParameter: index of the BoundsEntry
  uint64_t array_bytes = 0;     // kSymbol
  bool dynamic_shared = false;  // kSymbol: the size is known at run time only
  bool test_alignment = false;  // at run time
};

struct CheckedAccess {
  const ptx::Instruction* instruction = nullptr;
  MemoryAccess access;
  Decision decision;
  uint32_t site = 0;

  const ptx::Operand& Address() const { return instruction->operands[access.operand]; }
};

// Operands that a text refers to.
class TextArguments {
 public:
  std::string Add(const ptx::Operand& operand);  // "#0"
  std::span<const ptx::Operand> list() const { return list_; }

 private:
  std::vector<ptx::Operand> list_;
};

// Declarations of the scratch registers.
std::string ScratchText();
// Loads BoundsEntry `slot` into %odsbN and %odslN, declared here; `parameter` is the launch
// parameter's name.
std::string LoadBoundsText(uint32_t slot, std::string_view parameter);
// Loads the shadow directory's address into %odsdir.
std::string LoadDirectoryText();

class CheckText {
 public:
  CheckText(const ptx::Function& function, const Provenance& provenance)
      : function_(function), provenance_(provenance) {}

  // Sets %odsp in every thread for which one of the accesses may be bad. Accesses through one
  // register against the same bounds share their comparisons.
  std::string GroupTest(std::span<const CheckedAccess> accesses, TextArguments* arguments) const;

  // Asks __ops_debug_check about one access; %odsp says whether it may go ahead.
  std::string SlowCheck(const CheckedAccess& checked, TextArguments* arguments) const;

  // Zero in every destination register: what a skipped load or atomic yields.
  std::string ZeroDestinations(const ptx::Instruction& instruction, TextArguments* arguments) const;

 private:
  struct Range;  // accesses that share a comparison

  bool IsNarrow(const ptx::Operand& base) const;
  bool FitsNarrowTest(const CheckedAccess& checked) const;
  std::string Address(const CheckedAccess& checked, TextArguments* arguments) const;
  std::string TestedAddress(const CheckedAccess& checked, TextArguments* arguments) const;
  std::string SymbolBounds(const CheckedAccess& checked) const;
  std::string RangeTest(const Range& range, TextArguments* arguments, bool* first) const;
  std::string ShadowTest(const CheckedAccess& checked) const;
  std::string Accumulate(const CheckedAccess& checked, const std::string& comparison,
                         const std::string& type, const std::string& left, const std::string& right,
                         TextArguments* arguments, bool* first) const;

  const ptx::Function& function_;
  const Provenance& provenance_;
};

}  // namespace ops_debug::shadow
