// What is proved from the text, so that nothing needs to be checked when it runs.
#include <catch2/catch.hpp>
#include <string>

#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {
namespace {

RacePlan PlanOf(const std::string& body) {
  auto module = Instrument(
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 k_p, .param .u64 k_q, .param .u32 k_n)\n{\n"
      ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n.shared .align 4 .b8 s[1024];\n"
      ".shared .align 4 .b8 other[1024];\n"
      "ld.param.u64 %rd1, [k_p];\nld.param.u64 %rd2, [k_q];\nld.param.u32 %r3, [k_n];\n"
      "mov.u32 %r1, %tid.x;\nshl.b32 %r4, %r1, 2;\nmov.u32 %r5, s;\nadd.s32 %r2, %r5, %r4;\n"
      "mov.u32 %r6, other;\nadd.s32 %r7, %r6, %r4;\nmov.u32 %r8, %ctaid.x;\n"
      "mov.u32 %r9, %ntid.x;\nmad.lo.s32 %r10, %r8, %r9, %r1;\n" +
          body + "\nret;\n}\n",
      Rewrite::kMemoryChecks, {.memory = false, .races = true});
  REQUIRE(module.ok());
  return module->kernels.at(0).races;
}
uint32_t Proved(const std::string& body) { return PlanOf(body).proved_accesses; }

const std::string kWrite = "st.shared.u32 [%r2], %r1;\n", kRead = "ld.shared.u32 %r20, [%r2+4];\n",
                  kBarrier = "bar.sync 0;\n";

TEST_CASE("a read that barriers keep apart from all writes of its array needs no check") {
  CHECK(Proved(kWrite + kBarrier + kRead) == 1);
  CHECK(Proved(kWrite + kRead) == 0);
  CHECK(Proved(kWrite + kBarrier + kRead + kBarrier + kWrite) == 1);
  CHECK(Proved(kWrite + kBarrier + kRead + kWrite) == 0);
  CHECK(Proved(kWrite + kBarrier + kRead + "st.shared.u32 [%r7], %r1;") == 1);
  // An address that may be anywhere in shared memory.
  CHECK(Proved(kWrite + kBarrier + kRead + "st.shared.u32 [%r3], %r1;") == 0);
  // Barriers of warps do not separate warps.
  CHECK(Proved(kWrite + "bar.warp.sync -1;\n" + kRead) == 0);
}

TEST_CASE("loops: what comes behind the last barrier meets what stands before the first") {
  const auto loop = [](const std::string& body) {
    return "mov.u32 %r30, 0;\nagain:\n" + body +
           "add.s32 %r30, %r30, 1;\nsetp.lt.s32 %p1, %r30, %r3;\n@%p1 bra again;\n";
  };
  CHECK(Proved(loop(kWrite + kBarrier + kRead + kBarrier)) == 1);
  CHECK(Proved(loop(kWrite + kBarrier + kRead)) == 0);
  CHECK(Proved(loop(kBarrier + kWrite + kBarrier + kRead)) == 1);
}

TEST_CASE("nothing is proved where threads may pass different barriers") {
  const auto branch = [](const std::string& left_number) {
    return "setp.lt.s32 %p1, " + left_number + ", 32;\n@%p1 bra low;\n" + kWrite + kBarrier +
           "bra join;\nlow:\n" + kBarrier + kRead + "join:\n";
  };
  CHECK(Proved(branch("%r3")) == 1);                                     // a parameter
  CHECK(Proved(branch("%r8")) == 1);                                     // the block's number
  CHECK(Proved(branch("%r1")) == 0);                                     // the thread's
  CHECK(Proved("ld.global.u32 %r11, [%rd1];\n" + branch("%r11")) == 0);  // may differ between them
  CHECK(Proved("mov.u32 %r11, 0;\nsetp.lt.s32 %p2, %r1, 7;\n@%p2 mov.u32 %r11, 64;\n" +
               branch("%r11")) == 0);
  // A branch that all threads have left again.
  CHECK(Proved("setp.lt.s32 %p1, %r1, 32;\n@%p1 bra skip;\n" + kWrite + "skip:\n" + kBarrier +
               kRead) == 1);
  CHECK(Proved(kWrite + "bar.sync 1, 64;\n" + kRead) == 0);
}

bool Own(const std::string& body) {
  const RacePlan plan = PlanOf(body);
  REQUIRE(plan.slots.size() == 1);
  CHECK(plan.slots[0].own_index == plan.slots[0].index_x_only);
  return plan.slots[0].own_index;
}

const std::string kElement = "mul.wide.s32 %rd3, %r10, 4;\nadd.s64 %rd4, %rd1, %rd3;\n";

TEST_CASE("an element of its own for each thread of the grid") {
  CHECK(Own(kElement + "st.global.u32 [%rd4], %r1;"));
  CHECK(Own(kElement + "ld.global.u32 %r20, [%rd4];\nst.global.u32 [%rd4], %r20;"));
  CHECK(
      Own("mul.wide.s32 %rd3, %r10, 16;\nadd.s64 %rd4, %rd1, %rd3;\n"
          "st.global.u32 [%rd4+4], %r1;\nst.global.u32 [%rd4+12], %r1;"));
  // Grid-stride loop.
  CHECK(Own("mov.u32 %r11, %nctaid.x;\nmul.lo.s32 %r12, %r11, %r9;\nagain:\n" + kElement +
            "st.global.u32 [%rd4], %r1;\nadd.s32 %r10, %r10, %r12;\nsetp.lt.s32 %p1, %r10, %r3;\n"
            "@%p1 bra again;"));
}

TEST_CASE("what is not the thread's own element") {
  // The neighbour's, more than the stride, of the block only, twice as far apart in 32 bits.
  CHECK_FALSE(Own(kElement + "ld.global.u32 %r20, [%rd4+4];\nst.global.u32 [%rd4], %r20;"));
  CHECK_FALSE(Own(kElement + "st.global.v2.u32 [%rd4], {%r1, %r1};"));
  CHECK_FALSE(
      Own("mul.wide.s32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
          "st.global.u32 [%rd4], %r1;"));
  CHECK_FALSE(
      Own("shl.b32 %r11, %r10, 1;\nmul.wide.s32 %rd3, %r11, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
          "st.global.u32 [%rd4], %r1;"));
  CHECK_FALSE(Own("add.s32 %r10, %r10, %r3;\n" + kElement + "st.global.u32 [%rd4], %r1;"));
  CHECK_FALSE(Own("and.b32 %r10, %r10, 31;\n" + kElement + "st.global.u32 [%rd4], %r1;"));
}

}  // namespace
}  // namespace ops_debug::shadow
