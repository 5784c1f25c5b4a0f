// Adds to a module a twin of every entry and every function with a body: same code under another
// name, to be instrumented, while the originals stay as they were.
//
// Twins call twins. An entry's twin has one more parameter, the launch parameter of device_abi.h. A
// function's twin has one more parameter too, the launch id, so that a fault found in it can name
// its launch; a function whose address is taken cannot have it, because pointer and prototype must
// fit, and reports launch id 0. If races are checked, functions get the address of the thread's
// RaceThread (race_abi.h) in the same way; 0 stands for "not known".
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"

namespace ops_debug::shadow {

struct Twin {
  const ptx::Function* original = nullptr;
  ptx::Function* function = nullptr;  // in the module
  std::string_view
      launch_parameter;  // name of the added parameter, or empty (functions whose address is taken)
};

inline constexpr std::string_view kLaunchIdRegister = "%ods_launch";
inline constexpr std::string_view kRaceThreadRegister = "%ods_race";

// Appends the twins. Entries whose parameter space has no room for a launch header get no twin.
ptx::Result<std::vector<Twin>> MakeTwins(ptx::Module& module, bool with_race_thread = false);

// Bytes that an entry's parameters may take under the module's .version (PTX ISA 9.0, 5.1.6.1).
uint32_t ParameterSpaceBytes(const ptx::Module& module);

}  // namespace ops_debug::shadow
