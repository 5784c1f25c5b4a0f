// What an instrumented kernel cannot decide itself about races, barriers and initialisation. Such
// launches are captured and run once more on the CPU device, which decides them exactly
// (interposer/launch_capture.h); if they are too large for that, the report says what is open.
//
// Decided by the text alone, before a launch: whatever the checks of this folder do not follow, in
// the kernel itself or in a function that it may call. It errs towards "undecided", which costs a
// capture; but what all kernels do must not be in the list, or every program would be run twice.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/add_init_checks.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {

// Of a module as the program loaded it. All three outlive the object.
class UndecidedReader {
 public:
  UndecidedReader(const ptx::Module& module, const Checks& checks, const InitFacts& init_facts)
      : module_(module), checks_(checks), init_facts_(init_facts) {}

  // Of `entry` with everything that it may call: in words, sorted, each once.
  std::vector<std::string> FindUndecided(const ptx::Function& entry);
  // Through which pointers it reads global memory, in order to say for a launch whether unwritten
  // memory is at stake.
  UnwrittenReads FindUnwrittenReads(const ptx::Function& entry);

 private:
  std::vector<const ptx::Function*> ReachableFrom(const ptx::Function& entry);
  const std::vector<const ptx::Function*>& AddressTaken();

  const ptx::Module& module_;
  const Checks& checks_;
  const InitFacts& init_facts_;
  bool knows_address_taken_ = false;
  std::vector<const ptx::Function*> address_taken_;
  // Functions that are no entries serve many; by function and by whether shared memory has bits.
  std::map<std::pair<const ptx::Function*, bool>, std::set<std::string>> undecided_;
  std::map<const ptx::Function*, UnwrittenReads> reads_;
};

}  // namespace ops_debug::shadow
