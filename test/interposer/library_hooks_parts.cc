// What library_hooks_program.cc loads: a library that looks like a copy of NVRTC (COPY is its
// name), and one that is linked with it.
#include <cstdio>

#pragma GCC visibility push(default)
extern "C" {
#ifdef COPY
// Returns a value of its own: callers compare results, not only what is printed.
int nvrtcGetCUBIN(void*, char*) {
  std::printf("copy " COPY "\n");
  return COPY[0];
}
#else
int nvrtcGetCUBIN(void*, char*);

int CallLinked() { return nvrtcGetCUBIN(nullptr, nullptr); }

using Function = int (*)(void*, char*);
Function Table() { return &nvrtcGetCUBIN; }
#endif

int CallThrough(int (*function)(void*, char*)) { return function(nullptr, nullptr); }
}
#pragma GCC visibility pop
