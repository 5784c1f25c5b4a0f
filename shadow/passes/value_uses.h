// What the value that a load brings comes to matter for, as far as registers show it: a branch, an
// address, memory that outlives the thread. Only uses that are certain count. A value is followed
// through arithmetic that cannot hide it, along instructions that every thread executes that
// executed the load: their blocks post-dominate its block (Cytron et al., TOPLAS 1991), no guard
// suppresses them, and no other definition of the register comes between. Where a value is masked,
// selected, exchanged between lanes or kept in shared or local memory it is lost from sight, and
// nothing is claimed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::shadow {

struct ValueUse {
  std::string use;         // "branch", "address", "stored"
  uint32_t statement = 0;  // that uses it
};

class ValueUses {
 public:
  // Of a function that nothing was added to yet.
  explicit ValueUses(const ptx::Function& function);
  ~ValueUses();
  ValueUses(const ValueUses&) = delete;
  ValueUses& operator=(const ValueUses&) = delete;

  // False: the function's flow of control is not understood, so no use is certain.
  bool ok() const { return flow_ != nullptr; }
  // The first certain use of what `statement` writes into `reg`; null: none.
  const ValueUse* Find(uint32_t statement, ptx::RegisterId reg);

 private:
  struct Flow;

  const ptx::Function& function_;
  std::unique_ptr<Flow> flow_;
  std::map<std::pair<uint32_t, ptx::RegisterId>, std::vector<ValueUse>> found_;  // none or one
};

}  // namespace ops_debug::shadow
