// Loads the program as Python loads an extension: with everything it needs in a scope of its own.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 3;
  }
  const auto run = reinterpret_cast<int (*)(int, char**)>(dlsym(library, "RunPoolProgram"));
  return run ? run(argc - 1, argv + 1) : 3;
}
