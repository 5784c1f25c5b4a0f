// From the table of numerical faults of an instrumented module (precision_abi.h) to events. A new
// (site, kind) is reported at once. Counts that go on are reported now and then, and at the end:
// values that underflow in every launch are no news.
#pragma once

#include <cstdint>

#include "interposer/module_registry.h"

namespace ops_debug::interposer {

// True if something was published that has not been reported. The caller holds drain_mutex, here
// and below.
bool HasNewNumericFaults(const ModuleInstance& instance);

// `reachable`: the device answers, in the context that is current. `counts`: those that have grown
// are reported, too.
void DrainNumericFaults(const LoadedModule& module, ModuleInstance& instance, bool reachable,
                        bool counts);

}  // namespace ops_debug::interposer
