// Twins that would fit fewer threads into a block than their originals are capped.
#include "interposer/twin_registers.h"

#include <catch2/catch.hpp>
#include <map>

namespace ops_debug::interposer {
namespace {

shadow::KernelPlan Plan(const std::string& name) {
  shadow::KernelPlan plan;
  plan.name = name;
  plan.twin = name + "$twin";
  return plan;
}

constexpr char kText[] =
    ".visible .entry k(.param .u64 p)\n{ ret; }\n"
    ".visible .entry k$twin(.param .u64 p, .param .align 8 .b8 q[16])\n{ ret; }\n"
    ".visible .entry k$twin2(.param .u64 p)\n{ ret; }\n"
    ".visible .entry bound$twin(.param .u64 p)\n.maxntid 256, 1, 1\n{ ret; }\n";

}  // namespace

TEST_CASE("a twin that fits fewer threads is capped at what the original's threads leave") {
  const std::map<std::string, int> threads = {
      {"k", 1024}, {"k$twin", 768}, {"bound", 256}, {"bound$twin", 128}};
  const auto caps = TwinsThatFitLess(kText, {Plan("k"), Plan("bound"), Plan("missing")},
                                     [&](const char* name) { return threads.at(name); });
  REQUIRE(caps.size() == 1);
  CHECK(caps[0].twin == "k$twin");
  CHECK(caps[0].registers == 64);
}

TEST_CASE("a twin that fits as many is left alone, and so is one of which nothing is known") {
  CHECK(TwinsThatFitLess(kText, {Plan("k")}, [](const char*) { return 512; }).empty());
  CHECK(TwinsThatFitLess(kText, {Plan("k")}, [](const char*) { return 0; }).empty());
}

TEST_CASE("the number of registers is one that the hardware gives out") {
  const std::map<std::string, int> threads = {{"k", 896}, {"k$twin", 640}};
  const auto caps =
      TwinsThatFitLess(kText, {Plan("k")}, [&](const char* name) { return threads.at(name); });
  REQUIRE(caps.size() == 1);
  CHECK(caps[0].registers == 72);  // 896 * 72 <= 65536
}

TEST_CASE("the directive stands between the parameters and the body of the twin alone") {
  const std::string capped = CapRegisters(kText, {{"k$twin", 64}, {"bound$twin", 64}});
  std::string expected = kText;
  expected.replace(expected.find("q[16])\n{"), 8, "q[16])\n.maxnreg 64\n{");
  CHECK(capped == expected);
}

}  // namespace ops_debug::interposer
