// How the hooks get into a program that was linked and loaded without us: the driver loaded this
// library inside cuInit (injection.cc), so no symbol leads here. What leads to the driver are
// pointers: in the global offset tables of objects that were linked with -lcuda, in the tables that
// a run-time library fills by cuGetProcAddress, in variables that hold what dlsym returned. All of
// those that stand in writable data of loaded objects are found by value and pointed at the hooks:
// a 64-bit word that equals the address of a driver function is taken for a pointer to it. NVIDIA's
// cudart has its whole table (315 functions, 13.0) in such data before it calls cuInit (measured).
//
// Slots that the dynamic linker has not bound yet (lazy binding) are found by name instead.
//
// Later look-ups meet our cuGetProcAddress and dlsym, which are among the pointers that are set.
// Objects that are loaded later are treated when the program next comes through one of those.
// What stands on the heap is not seen: pointers that a program got before cuInit and keeps there.
#pragma once

#include <cstddef>

namespace ops_debug::interposer {

// Treats all loaded objects. Number of pointers that were set.
size_t RebindLoadedObjects() noexcept;

// Treats what was loaded since. Cheap if nothing was.
void RebindNewObjects() noexcept;

}  // namespace ops_debug::interposer
