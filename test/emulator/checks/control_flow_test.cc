// Lanes that are missing at a place went around it, or left before it.
#include "emulator/checks/control_flow.h"

#include <catch2/catch.hpp>

#include "emulator/program.h"

namespace ops_debug::emulator {
namespace {

// The body has one bar.sync; asks about its place and the only exit.
bool WentAround(const std::string& body) {
  DeviceMemory memory;
  auto loaded = Program::Load(R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out) {
.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16;
)" + body + "\nret;\n}\n",
                              memory);
  if (!loaded.ok()) FAIL(loaded.error().ToString());
  const Function& function = *(*loaded)->impl().functions[0];
  uint32_t barrier = 0, exit = 0;
  for (uint32_t i = 0; i < function.code.size(); ++i) {
    if (function.code[i].op == Op::kBarrier) barrier = i;
    if (function.code[i].op == Op::kExit || function.code[i].op == Op::kReturn) exit = i;
  }
  return ControlFlow(function).WentAround(barrier, exit);
}

TEST_CASE("a branch around the barrier, with work behind it") {
  CHECK(WentAround("@!%p1 bra L; bar.sync 0; L: st.global.u32 [%rd1], %r1;"));
}
TEST_CASE("an early return") { CHECK_FALSE(WentAround("@!%p1 bra L; bar.sync 0; L: ")); }
TEST_CASE("an early return before work that only the others do") {
  CHECK_FALSE(WentAround("@!%p1 bra L; bar.sync 0; st.global.u32 [%rd1], %r1; L: "));
}
TEST_CASE("an early return behind work of its own") {
  CHECK_FALSE(WentAround(
      "@%p1 bra A; st.global.u32 [%rd1], 0; bra L; A: bar.sync 0; st.global.u32 [%rd1], 1; L: "));
}
TEST_CASE("a loop with too few rounds, and work behind it") {
  CHECK(
      WentAround("L: bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 40; @%p2 bra L; "
                 "st.global.u32 [%rd1], 1;"));
}
TEST_CASE("leaving a loop for good, behind work of its last round") {
  CHECK_FALSE(
      WentAround("L: bar.sync 0; st.global.u32 [%rd1], 1; add.u32 %r1, %r1, 1; "
                 "setp.lt.u32 %p2, %r1, 40; @%p2 bra L; "));
}

TEST_CASE("a trap on the way, as of a failed assertion, changes nothing") {
  CHECK(
      WentAround("@!%p1 bra L; bar.sync 0; setp.eq.u32 %p2, %r1, 99; @%p2 bra T; L: "
                 "st.global.u32 [%rd1], %r1; bra E; T: trap; E: "));
}

}  // namespace
}  // namespace ops_debug::emulator
