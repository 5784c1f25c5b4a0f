// `ptxas --fmad=false` as a property of the text. The driver's own compiler has no such option, but
// PTX has: "mul/add sequences with no rounding modifiers may be optimized to use fused-multiply-add
// instructions" (PTX ISA, add and mul), those with one may not. Round-to-nearest-even is what an
// instruction without a modifier means anyway.
#pragma once

#include <string>

namespace ops_debug::interposer {

// The text with `.rn` in every floating-point add, sub and mul that names no rounding.
std::string ForbidFusing(const std::string& ptx);

}  // namespace ops_debug::interposer
