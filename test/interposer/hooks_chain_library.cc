// Libraries whose functions ask dlsym from where they stand. Built several times, with LETTER,
// SHIM, LOCAL or DEPENDENCY.
#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef LETTER
// Appends its letter, then goes on with the next definition behind this library.
EXPORT void OpsDebugTestChain(char* text) {
  std::strcat(text, LETTER);
  auto* next = reinterpret_cast<void (*)(char*)>(dlsym(RTLD_NEXT, "OpsDebugTestChain"));
  if (next != nullptr) next(text);
}
#endif

#ifdef SHIM
// A program's own function that happens to have a driver name.
EXPORT int cuMemAlloc_v2(unsigned long long* address, size_t size_bytes) {
  *address = 0x900000 + size_bytes;
  return 0;
}
#endif

#ifdef DEPENDENCY
EXPORT int OnlyInDependency() { return 42; }
#endif

#ifdef LOCAL
EXPORT int AskLocalScope() {
  auto* by_default = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "OnlyInDependency"));
  auto* by_next = reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "OnlyInDependency"));
  return by_default != nullptr && by_default == by_next ? by_default() : -1;
}
#endif
