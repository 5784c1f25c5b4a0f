// Numerical faults as events: what the device published of one (site, kind), or what was found in
// the text of a kernel, with site, launch, values and where they come from.
#pragma once

#include <cstdint>

#include "interposer/module_registry.h"
#include "shadow/abi/precision_abi.h"

namespace ops_debug::interposer {

struct NumericCounts {
  uint64_t count = 0;       // since the last event of this site and kind; 0: at least one
  uint64_t executions = 0;  // the same, if they are counted
  double worst = 0;         // of all
};

// Sends a NumericalFault event. A key that names no site is ignored: the memory is the program's to
// damage.
void ReportNumericFault(const LoadedModule& module, const shadow::PublishedNumeric& published,
                        const NumericCounts& counts);

// At the first launch of a kernel: the constants in its text that went through float.
void ReportWidenedConstants(const LoadedModule& module, KernelRecord& kernel, uint64_t launch_id);

}  // namespace ops_debug::interposer
