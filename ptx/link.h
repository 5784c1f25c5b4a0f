// Linking of PTX modules: what nvlink does for machine code, on text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/result.h"

namespace ops_debug::ptx {

struct LinkInput {
  std::string name;  // for messages: "b.ptx"
  std::string_view ptx;
};

// One module that holds the functions and variables of all inputs. Names without linkage stay
// private to their input; of `.weak` and `.common` ones a single definition remains. Errors name
// every symbol that is defined twice or that code uses and nobody defines.
Result<std::string> LinkModules(std::span<const LinkInput> inputs);

}  // namespace ops_debug::ptx
