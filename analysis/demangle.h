// Names as their author wrote them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ops_debug::analysis {

// "_Z4copyPKfPf" -> "copy(float const*, float*)"; names that are not mangled stay as they are.
std::string Demangle(const std::string& name);

// Parameter types of a demangled signature, in order; empty if there is no parameter list.
// "void f<int (*)(int)>(int*, Pair<int, 2>)" -> {"int*", "Pair<int, 2>"}.
std::vector<std::string> ParameterTypes(std::string_view signature);

// The name without return type, template arguments and parameters: "void ns::f<int>(int*)" ->
// "ns::f".
std::string BareName(std::string_view signature);

}  // namespace ops_debug::analysis
