// One published fault as an event: site, launch, offender, and the allocation
// that it concerns.
#pragma once

#include <cstdint>

#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "shadow/abi/device_abi.h"

namespace ops_debug::interposer {

// `entry` is site * kFaultClasses + class; `count` 0 = at least one.
FaultEvent MakeFaultEvent(const LoadedModule& module, uint64_t entry,
                          const shadow::PublishedFault& published, uint64_t count);

}  // namespace ops_debug::interposer
