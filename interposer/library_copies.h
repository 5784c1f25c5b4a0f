// Which copy of a library a call to one of its hooked functions means (library_hooks.h), where the
// program did not get the function from dlsym.
//
// Every object that was linked with such a library has slots (global offset table) for the
// functions that it imports, and the dynamic linker has filled them with our exports. They are set
// to entries that stand for what it would have filled in without us (without a session: to just
// that), by its own rules: first what the global scope has, then the object's own dependencies.
// Then it does not matter who calls through a slot, or through an address that was taken from one
// (PyTorch hands NVRTC's around in a table). Objects that come later are treated when the program
// next calls dlsym, as it does after a dlopen. What calls earlier, in a constructor, comes through
// the export: there the caller decides.
#pragma once

#include "interposer/library_hooks.h"

namespace ops_debug::interposer {

// Sets the slots of objects that were loaded since. Cheap if there are none.
void BindLibraryImports() noexcept;

// What a look-up by RTLD_DEFAULT from this code address would find without us; null: nothing.
void* RealInScope(const LibraryFunction& function, const void* caller);

// What a call of the export means. Null if there is no copy at all.
void* RealForCaller(const LibraryFunction& function, const void* caller);

}  // namespace ops_debug::interposer
