// Text and parsing shortcuts of the PTX tests.
#pragma once

#include <stdexcept>
#include <string>

#include "ptx/parser.h"

namespace ops_debug::ptx {

// A module with one entry "k" and the usual registers.
inline std::string Kernel(const std::string& body) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 k_param_0)\n{\n"
         ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<10>; .reg .v4 .f32 "
         "%v;\n" +
         body + "\n}\n";
}

inline Module ParseText(const std::string& text) {
  auto module = Parse(text);
  if (!module.ok()) throw std::runtime_error(module.error().ToString());
  return std::move(module).value();
}

}  // namespace ops_debug::ptx
