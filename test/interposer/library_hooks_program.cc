// Calls one function of several copies of a library in all the ways in which programs do, and
// prints which copy each call reached. It must print the same with the interposer as without.
//
//   library_hooks_program FOLDER    FOLDER holds one/ and two/ (library_hooks_parts.cc)
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

using Function = int (*)(void*, char*);

void* Open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::printf("%s\n", dlerror());
  return library;
}

template <class Type>
Type Get(void* library, const char* name) {
  return reinterpret_cast<Type>(dlsym(library, name));
}

void Report(const char* how, int result) { std::printf("%s: %c\n", how, result); }

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("before: %d\n", dlsym(RTLD_DEFAULT, "nvrtcGetCUBIN") != nullptr);

  void* one = Open(folder + "/one/libnvrtc_one.so");
  void* two = Open(folder + "/two/libnvrtc_two.so");
  Report("dlsym one", Get<Function>(one, "nvrtcGetCUBIN")(nullptr, nullptr));
  Report("dlsym two", Get<Function>(two, "nvrtcGetCUBIN")(nullptr, nullptr));
  std::printf("same again: %d\n", dlsym(one, "nvrtcGetCUBIN") == dlsym(one, "nvrtcGetCUBIN"));
  std::printf("different: %d\n", dlsym(one, "nvrtcGetCUBIN") != dlsym(two, "nvrtcGetCUBIN"));

  void* user_one = Open(folder + "/one/libuser_one.so");
  Report("linked one", Get<int (*)()>(user_one, "CallLinked")());
  // Only one copy is imported so far.
  Report("table one, from here", Get<Function (*)()>(user_one, "Table")()(nullptr, nullptr));
  void* user_two = Open(folder + "/two/libuser_two.so");
  Report("linked two", Get<int (*)()>(user_two, "CallLinked")());
  Report("linked one again", Get<int (*)()>(user_one, "CallLinked")());
  // Handed to a library of the same package that is linked with neither.
  const auto through_two = Get<int (*)(Function)>(two, "CallThrough");
  Report("table two, from its package", through_two(Get<Function (*)()>(user_two, "Table")()));
  std::printf("default: %d\n", dlsym(RTLD_DEFAULT, "nvrtcGetCUBIN") != nullptr);
  return 0;
}
