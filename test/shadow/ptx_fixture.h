// Small PTX modules for the pass tests: a header, and one entry around a body.
#pragma once

#include <string>

#include "ptx/parser.h"

namespace ops_debug::shadow {

inline std::string ModuleText(const std::string& items) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n" + items;
}

// Entry `k(u64 p, u32 n, u64 q)` with registers %r<20>, %rd<20>, %f<20>, %p<8>.
inline std::string EntryText(const std::string& body) {
  return ".visible .entry k(.param .u64 k_p, .param .u32 k_n, .param .u64 k_q)\n{\n"
         ".reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<20>;\n.reg .pred %p<8>;\n" +
         body + "\nret;\n}\n";
}

inline ptx::Module ParseOrDie(const std::string& text) {
  auto parsed = ptx::Parse(text);
  if (!parsed.ok()) throw std::runtime_error(parsed.error().ToString());
  return std::move(parsed).value();
}

}  // namespace ops_debug::shadow
