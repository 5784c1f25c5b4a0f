// The special registers of PTX ISA 9.0, chapter 10.
#pragma once

#include <string_view>

namespace ops_debug::ptx {

// "%tid", "%laneid", "%pm3", "WARP_SZ"... (without .x).
bool IsSpecialRegister(std::string_view name);

}  // namespace ops_debug::ptx
