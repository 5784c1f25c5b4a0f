// Which definitions of a register reach which uses (classic reaching definitions), over one
// function.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ptx/cfg.h"
#include "ptx/ir.h"

namespace ops_debug::ptx {

class DefUse {
 public:
  // Statement of a pseudo-definition: the value that the register has on entry (a .reg parameter,
  // or undefined).
  static constexpr uint32_t kAtEntry = ~0u;

  struct Definition {
    uint32_t statement = kAtEntry;
    RegisterId reg = kNoRegister;
    // Under a guard, or of a part of the register: earlier definitions live on beside it.
    bool conditional = false;
  };
  struct Use {
    uint32_t statement = 0;
    RegisterId reg = kNoRegister;
  };

  // `flow` is of the same, unchanged body.
  DefUse(const Function& function, const ControlFlow& flow);

  // Ordered by register, then statement; behind them the pseudo-definitions that reach some use.
  const std::vector<Definition>& definitions() const { return definitions_; }
  // Ordered by statement; a register that a statement reads twice is one use.
  const std::vector<Use>& uses() const { return uses_; }

  // Indexes into definitions() of what may be in `reg` when `statement` reads it; empty if it does
  // not read it. Code that the entry does not reach neither receives nor passes on values.
  std::span<const uint32_t> ReachingDefinitions(uint32_t statement, RegisterId reg) const;
  // The only definition, unconditional and not at the entry, that reaches the use; nullptr
  // otherwise.
  const Definition* UniqueDefinition(uint32_t statement, RegisterId reg) const;
  // Indexes into uses() that `definition` reaches.
  std::span<const uint32_t> UsesOf(uint32_t definition) const;
  // Indexes into definitions() of what `statement` writes.
  std::vector<uint32_t> DefinitionsAt(uint32_t statement) const;

 private:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  class Solver;

  std::vector<Definition> definitions_;
  std::vector<Use> uses_;
  std::vector<uint32_t> first_use_;  // by statement, one more at the end: uses_ of a statement
  std::vector<Range>
      reaching_;  // by use: part of reaching_pool_; uses with equal sets may share it
  std::vector<uint32_t> reaching_pool_;
  std::vector<uint32_t>
      first_reached_;  // by definition, one more at the end: part of reached_pool_
  std::vector<uint32_t> reached_pool_;
  std::vector<std::pair<uint32_t, uint32_t>>
      definitions_by_statement_;  // (statement, definition), sorted
};

}  // namespace ops_debug::ptx
