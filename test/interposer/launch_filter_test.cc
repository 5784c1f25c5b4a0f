// Which launches of a kernel a filter lets through.
#include "interposer/launch_filter.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace ops_debug::interposer {
namespace {

// "C" for each checked launch, else the first letter of the flag: k(ernel-name), l(aunch-...),
// s(ample).
std::string Decisions(const LaunchSelection& selection, int launches,
                      const std::string& name = "_Z4gemmPf") {
  const LaunchFilter filter(selection);
  KernelFilter kernel;
  std::string text;
  for (int i = 0; i < launches; ++i) {
    const char* reason = filter.Decide(kernel, name);
    text += reason == nullptr ? 'C'
                              : std::string(reason).substr(std::string("left out by --").size())[0];
  }
  return text;
}

TEST_CASE("without a filter every launch is checked") { CHECK(Decisions({}, 4) == "CCCC"); }

TEST_CASE("skip, count and sample choose among a kernel's launches") {
  CHECK(Decisions({.skip = 2}, 5) == "llCCC");
  CHECK(Decisions({.count = 2}, 5) == "CClll");
  CHECK(Decisions({.skip = 1, .count = 2}, 5) == "lCCll");
  CHECK(Decisions({.sample = 3}, 8) == "CssCssCs");
  CHECK(Decisions({.skip = 1, .sample = 2}, 6) == "lCsCsC");
}

TEST_CASE("the count is of checked launches, also of a sample") {
  CHECK(Decisions({.count = 2, .sample = 3}, 9) == "CssCsslll");
}

TEST_CASE("filters name themselves with their value") {
  KernelFilter kernel;
  const LaunchFilter skip({.skip = 12});
  CHECK(std::string(skip.Decide(kernel, "k")) == "left out by --launch-skip 12");
  KernelFilter sampled;
  const LaunchFilter sample({.sample = 7});
  REQUIRE(sample.Decide(sampled, "k") == nullptr);
  CHECK(std::string(sample.Decide(sampled, "k")) == "left out by --sample 1/7");
  KernelFilter past;
  const LaunchFilter count({.count = 1});
  REQUIRE(count.Decide(past, "k") == nullptr);
  CHECK(std::string(count.Decide(past, "k")) == "left out by --launch-count 1");
  KernelFilter other;
  const LaunchFilter name({.name_pattern = "soft(max)?"});
  CHECK(std::string(name.Decide(other, "k")) == "left out by --kernel-name soft(max)?");
}

TEST_CASE("names match mangled or demangled, anywhere") {
  CHECK(Decisions({.name_pattern = "gemm"}, 1) == "C");
  CHECK(Decisions({.name_pattern = "^_Z4gemm"}, 1) == "C");
  CHECK(Decisions({.name_pattern = "^gemm\\(float\\*\\)$"}, 1) == "C");
  CHECK(Decisions({.name_pattern = "Gemm"}, 1) == "k");
  CHECK(Decisions({.name_pattern = "softmax|gemm"}, 1) == "C");
  CHECK(Decisions({.name_pattern = "softmax"}, 2) == "kk");
  CHECK(Decisions({.name_pattern = "triton"}, 1, "triton_poi_fused_0") == "C");
}

TEST_CASE("launches of other kernels do not count") {
  const LaunchFilter filter({.count = 1});
  KernelFilter a, b;
  CHECK(filter.Decide(a, "a") == nullptr);
  CHECK(filter.Decide(b, "b") == nullptr);
  CHECK(filter.Decide(a, "a") != nullptr);
}

TEST_CASE("a pattern that is no regular expression filters nothing") {
  CHECK(Decisions({.name_pattern = "("}, 2) == "CC");
}

TEST_CASE("threads together get exactly the launches that were asked for") {
  const LaunchFilter filter({.name_pattern = "gemm", .skip = 100, .count = 50, .sample = 3});
  KernelFilter kernel;
  std::atomic<int> checked{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int launch = 0; launch < 1000; ++launch) {
        if (filter.Decide(kernel, "_Z4gemmPf") == nullptr) ++checked;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(checked == 50);
}

}  // namespace
}  // namespace ops_debug::interposer
