// The entries of a PTX module and their parameters. Types come from the mangled name; PTX itself
// knows only widths.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "runner/element.h"

namespace ops_debug::runner {

struct Parameter {
  std::string name;  // "arg0" until the source tells a better one
  ParameterType type;
  uint32_t size_bytes = 0;
};

// Which of the special registers an entry, or a function of its module, reads: what its launch
// shape must fit.
struct IndexUse {
  std::array<bool, 3> thread{};             // %tid
  std::array<bool, 3> block{};              // %ctaid
  std::array<bool, 3> threads_per_block{};  // %ntid
};

using Dimensions = std::array<uint32_t, 3>;

struct Entry {
  std::string mangled;
  std::string demangled;     // "matmul_kernel(float const*, ...)"
  std::string name;          // "matmul_kernel": without scope, template arguments and parameters
  bool types_known = false;  // the name was mangled
  std::vector<Parameter> parameters;
  std::optional<Dimensions> required_block;  // .reqntid
  std::optional<Dimensions> maximum_block;   // .maxntid, from __launch_bounds__
  IndexUse index_use;
};

std::string Demangle(const std::string& name);

// "void ns::k<float, 4>(float const*, int)" -> {"float const*", "int"}; nullopt if there is no
// parameter list.
std::optional<std::vector<std::string>> ParameterTypesOf(std::string_view demangled);

// "void ns::k<float, 4>(float const*, int)" -> "k".
std::string UnqualifiedName(std::string_view demangled);

// All entries with a body, in file order.
std::vector<Entry> ReadEntries(const ptx::Module& module);

}  // namespace ops_debug::runner
