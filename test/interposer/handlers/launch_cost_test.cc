// What a launch costs the host beyond the driver's own work: a training step has a thousand
// launches in eight milliseconds, so a microsecond each is an eighth. Hidden:
// interposer_handlers_test
// "[cost]" prints the numbers; they mean nothing under a sanitizer or on a busy machine. The one
// test that always runs checks an upper limit that only a blunder exceeds.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

#include "interposer/driver_table.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"

namespace ops_debug::interposer::handlers_test {
namespace {

using LaunchFunction = decltype(&cuLaunchKernel);

struct Scene {
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
  std::vector<CUdeviceptr> allocations;

  Scene() {
    StartTest();
    REQUIRE(cuModuleLoadData(&module, ScaleText()) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
    for (int i = 0; i < 2000; i++) {
      allocations.emplace_back();
      REQUIRE(cuMemAlloc_v2(&allocations.back(), 4000) == CUDA_SUCCESS);
    }
    fake::TheDriver().instant_launches = true;
  }
  ~Scene() {
    fake::TheDriver().instant_launches = false;
    for (const CUdeviceptr each : allocations) cuMemFree_v2(each);
    cuModuleUnload(module);
  }
};

// As deep as a framework calls.
__attribute__((noinline)) double MeasureAtDepth(int depth, const Scene& scene,
                                                LaunchFunction launch, int launches) {
  if (depth > 0) {
    const double time = MeasureAtDepth(depth - 1, scene, launch, launches);
    __asm__ volatile("");  // no tail call
    return time;
  }
  int n = 7;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; i++) {
    CUdeviceptr p = scene.allocations[static_cast<size_t>(i) % scene.allocations.size()];
    void* parameters[] = {&p, &n};
    launch(scene.scale, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / launches;
}

double HookCost_ns(int launches) {
  const Scene scene;
  constexpr int kDepth = 24;
  const auto native = reinterpret_cast<LaunchFunction>(RealAddress(DriverFunction::cuLaunchKernel));
  MeasureAtDepth(kDepth, scene, &cuLaunchKernel, 1000);
  const double hooked = MeasureAtDepth(kDepth, scene, &cuLaunchKernel, launches);
  return hooked - MeasureAtDepth(kDepth, scene, native, launches);
}

}  // namespace

TEST_CASE("host time of a checked launch", "[.cost]") {
  for (int i = 0; i < 5; i++) std::printf("hook: %.0f ns per launch\n", HookCost_ns(200000));
}

TEST_CASE("a checked launch costs the host little") { CHECK(HookCost_ns(2000) < 50000); }

}  // namespace ops_debug::interposer::handlers_test
