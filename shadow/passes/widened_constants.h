// Constants that were written for double and went through float: 0.12f in a sum of doubles is
// 0.11999999731779099. The compiler folds the conversion, so what is left is a double that a float
// holds exactly, and whose shortest decimal as a float (Steele and White, 1990) is short and, read
// as a double, another number. A constant that was meant for double has 29 zero bits at its end by
// chance once in half a billion.
#pragma once

#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/source_frames.h"

namespace ops_debug::shadow {

// True if `value` is such a constant.
bool IsWidenedFloat(double value);

// One site for each instruction of the function that uses one.
std::vector<NumericSite> FindWidenedConstants(const ptx::Function& function,
                                              const SourceFrames& frames);

}  // namespace ops_debug::shadow
