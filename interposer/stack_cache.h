// Host stacks for hot paths. Walking a stack by its unwind tables costs microseconds, and a program
// makes most of its calls from few places. So a walk also notes where on the stack each return
// address was found. At the next call from the same depth those places are read again: if all of
// them hold the same return addresses, the stack is the same, and the earlier walk answers. That
// costs some ten loads.
#pragma once

#include <cstdint>
#include <memory>

#include "interposer/stack.h"

namespace ops_debug::interposer {

// Immutable, shared by all that were captured at one place; never null, empty if there is no
// memory.
using SharedHostStack = std::shared_ptr<const HostStack>;

// The stack of the calling thread, without the frames of this library. `hint` spreads calls that
// come from one depth but from different places (a kernel's handle, say). Never throws.
SharedHostStack CachedHostStack(uint64_t hint = 0) noexcept;

}  // namespace ops_debug::interposer
