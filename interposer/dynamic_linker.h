// The C library's own dlsym, which the library's exported one hides from everybody, and ourselves
// too.
#pragma once

#include <link.h>

#include <array>
#include <cstddef>

namespace ops_debug::interposer {

using DlsymFunction = void* (*)(void* handle, const char* name);

// The real dlsym. Thread-safe; works before any constructor has run; allocates nothing in the usual
// case (an allocator that is being interposed calls dlsym from inside malloc).
DlsymFunction RealDlsym() noexcept;

// The addresses that `dlsym` can have: glibc keeps one per symbol version. True if `address` is one
// of them.
bool IsRealDlsym(const void* address) noexcept;
std::array<const void*, 2> RealDlsymAddresses() noexcept;  // null: that version does not exist

// dl_iterate_phdr, which must not be called otherwise: glibc locks the list of objects for it, and
// does not unlock it in the child of a fork. So no thread is in here while fork() runs.
int VisitObjects(int (*visit)(dl_phdr_info* info, size_t size, void* data), void* data) noexcept;

// How many objects were ever loaded.
unsigned long long LoadCount() noexcept;

}  // namespace ops_debug::interposer
