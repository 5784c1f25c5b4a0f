// Where a number comes from, through copies, changes of sign and exact conversions.
#pragma once

#include <cstdint>

#include "ptx/def_use.h"
#include "ptx/ir.h"

namespace ops_debug::shadow {

// The one instruction that brought what `statement` reads as `operand` into the kernel or the
// thread (a load, an exchange between lanes, an asynchronous matrix instruction); with
// `or_narrowing` also one that rounded it to a narrower type. Null: none, or not one place.
const ptx::Instruction* FindOrigin(const ptx::Function& function, const ptx::DefUse& flow,
                                   uint32_t statement, const ptx::Operand& operand,
                                   bool or_narrowing);

}  // namespace ops_debug::shadow
