// libcudart.so.12: what it does differently from the CUDA 13 run-time that the other tests build
// programs for. No CUDA 12 compiler is needed: the functions are looked up as a program built with
// one binds to them, by name and version node.
#include <dlfcn.h>

#include <vector>

#include "test/emulator/driver/driver_fixture.h"

namespace {

template <class Function>
Function Find(const char* name) {
  static void* const library = dlopen(OPS_DEBUG_EMULATOR "/libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  void* found = dlvsym(library, name, "libcudart.so.12");
  INFO(name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function>(found);
}

}  // namespace

TEST_CASE("the CUDA 12 run-time says its version") {
  int version = 0;
  CHECK(Find<int (*)(int*)>("cudaRuntimeGetVersion")(&version) == 0);
  CHECK(version / 1000 == 12);
}

TEST_CASE("device properties have the CUDA 12 layout") {
  // sizeof(cudaDeviceProp) and offsets in CUDA 12.8's driver_types.h, and bytes behind that must
  // stay untouched.
  constexpr size_t kBytes = 1032, kMultiProcessorCount = 388, kMajor = 360;
  std::vector<unsigned char> properties(kBytes + 64, 0xee);
  const auto get = Find<int (*)(void*, int)>("cudaGetDeviceProperties_v2");
  CHECK(get(properties.data(), 0) == 0);
  CHECK(*reinterpret_cast<int*>(properties.data() + kMultiProcessorCount) == 132);
  CHECK(*reinterpret_cast<int*>(properties.data() + kMajor) == 9);
  for (size_t i = kBytes; i < properties.size(); ++i) CHECK(properties[i] == 0xee);
}

TEST_CASE("managed memory hints take a device ordinal in CUDA 12") {
  void* memory = nullptr;
  REQUIRE(Find<int (*)(void**, size_t, unsigned)>("cudaMallocManaged")(&memory, 4096, 1) == 0);
  CHECK(Find<int (*)(const void*, size_t, int, void*)>("cudaMemPrefetchAsync")(memory, 4096, 0,
                                                                               nullptr) == 0);
  CHECK(Find<int (*)(const void*, size_t, int, int)>("cudaMemAdvise")(memory, 4096, 1, 0) == 0);
  CHECK(Find<int (*)(void*)>("cudaFree")(memory) == 0);
  CHECK(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
}
