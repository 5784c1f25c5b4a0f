// One published fault as an event: site, launch, offender, and the allocation
// that it concerns.
#pragma once

#include <cstdint>
#include <optional>

#include "interposer/event_sender.h"
#include "interposer/module_registry.h"
#include "shadow/abi/device_abi.h"
#include "shadow/host/allocation_book.h"

namespace ops_debug::interposer {

// The allocation or tensor that an access at `address` concerns: the one that holds it or the
// nearest, as they were at the launch `time` (~0: now). Empty if none is near. A graph's launch is
// numbered when it is captured; so if the device says that the memory was freed, that counts more.
std::optional<shadow::Allocation> AllocationNear(uint64_t address, uint64_t time,
                                                 proto_enums::FaultClass fault_class);

FaultSite Describe(const shadow::Site& site);

// With the stacks resolved.
AllocationDescription Describe(const shadow::Allocation& allocation);

proto_enums::FaultClass EventClassOf(shadow::FaultClass fault_class);

// Sends a Fault or UninitialisedRead event. `entry` is site * kFaultClasses + class; `count` 0 = at
// least one.
void ReportFault(const LoadedModule& module, uint64_t entry,
                 const shadow::PublishedFault& published, uint64_t count);

}  // namespace ops_debug::interposer
