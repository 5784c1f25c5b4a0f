// Which device kernels run on.
#pragma once

#include <variant>

#include "launcher/diagnostics.h"
#include "launcher/run_options.h"

namespace ops_debug::launcher {

// Turns `auto` into a GPU or the emulator; checks that a GPU that was asked for is there.
std::variant<DeviceChoice, Problem> ChooseDevice(const DeviceChoice& wish);

}  // namespace ops_debug::launcher
