// Values of device memory as an author reads them.
#pragma once

#include <string>
#include <string_view>

namespace ops_debug::analysis {

// `bytes`, little endian, in the type that the PTX instruction names: "st.global.f32" -> "1.5",
// "ld.v2.u32" -> "1, 2". Types without a meaning (.b32) are shown in hexadecimal, with what they
// probably mean: "0x3fc00000 (1.5 as a float)". Empty if there are no bytes.
std::string ValueText(std::string_view bytes, std::string_view instruction);

}  // namespace ops_debug::analysis
