// What is proved from the text, so that nothing needs to be checked when it runs.
#include <catch2/catch.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shadow/host/own_proof.h"
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

// The kernel's parameters: k_p at byte 0, k_q at 8, k_n at 16.
struct Arguments {
  uint64_t p = 0x1000, q = 0x2000;
  uint32_t n = 4096;
};

// Whether the host proves for such a launch that threads do not meet through k_p.
bool Own(const std::string& body, const LaunchShape& shape = {{64, 1, 1}, {128, 1, 1}},
         const Arguments& arguments = {}) {
  const RacePlan plan = PlanOf(body);
  REQUIRE(plan.slots.size() == 1);
  return ThreadsStayApart(plan.slots[0].forms, shape,
                          LaunchParameters(std::as_bytes(std::span(&arguments, 1))),
                          Among::kAllThreads);
}

const std::string kElement = "mul.wide.s32 %rd3, %r10, 4;\nadd.s64 %rd4, %rd1, %rd3;\n";

TEST_CASE("an element of its own for each thread of the grid") {
  CHECK(Own(kElement + "st.global.u32 [%rd4], %r1;"));
  CHECK(Own(kElement + "ld.global.u32 %r20, [%rd4];\nst.global.u32 [%rd4], %r20;"));
  CHECK(
      Own("mul.wide.s32 %rd3, %r10, 16;\nadd.s64 %rd4, %rd1, %rd3;\n"
          "st.global.u32 [%rd4+4], %r1;\nst.global.u32 [%rd4+12], %r1;"));
  // The same for all threads further on.
  CHECK(Own("add.s32 %r10, %r10, %r3;\n" + kElement + "st.global.u32 [%rd4], %r1;"));
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
  // Twice as far apart in 32 bits: fine as long as these do not wrap around.
  const std::string far =
      "shl.b32 %r11, %r10, 1;\nmul.wide.s32 %rd3, %r11, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
      "st.global.u32 [%rd4], %r1;";
  CHECK(Own(far));
  CHECK_FALSE(Own(far, {{1 << 22, 1, 1}, {1024, 1, 1}}));
  CHECK_FALSE(Own("and.b32 %r10, %r10, 31;\n" + kElement + "st.global.u32 [%rd4], %r1;"));
}

TEST_CASE("an element of its own in a block of two dimensions depends on the launch") {
  // p[(ctaid.y * 8 + tid.y) * n + ctaid.x * 32 + tid.x]
  const std::string body =
      "mov.u32 %r11, %tid.y;\nmov.u32 %r12, %ctaid.y;\nshl.b32 %r13, %r12, 3;\n"
      "add.s32 %r14, %r13, %r11;\nshl.b32 %r15, %r8, 5;\nadd.s32 %r16, %r15, %r1;\n"
      "mad.lo.s32 %r17, %r14, %r3, %r16;\nmul.wide.s32 %rd3, %r17, 4;\n"
      "add.s64 %rd4, %rd1, %rd3;\nst.global.u32 [%rd4], %r1;";
  CHECK(Own(body, {{16, 4, 1}, {32, 8, 1}}, {.n = 512}));
  CHECK_FALSE(Own(body, {{16, 4, 1}, {32, 8, 1}}, {.n = 511}));  // rows overlap
  CHECK_FALSE(Own(body, {{16, 4, 1}, {64, 8, 1}}, {.n = 512}));  // so do blocks
  CHECK_FALSE(Own(body, {{16, 4, 2}, {32, 8, 1}}, {.n = 512}));  // the same in each layer
  CHECK_FALSE(Own(body, {{16, 4, 1}, {32, 9, 1}}, {.n = 512}));
  CHECK_FALSE(Own(body, {{1 << 20, 64, 1}, {32, 8, 1}}, {.n = 1 << 25}));  // beyond 32 bits
}

TEST_CASE("one thread of each block, behind a branch") {
  const auto only = [](const std::string& comparison) {
    return comparison +
           "@%p1 bra skip;\nmul.wide.u32 %rd3, %r8, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
           "st.global.u32 [%rd4], %r1;\nskip:\n";
  };
  CHECK(Own(only("setp.ne.s32 %p1, %r1, 0;\n")));
  CHECK_FALSE(Own(only("setp.eq.s32 %p1, %r1, 0;\n")));
  CHECK_FALSE(Own(only("setp.gt.s32 %p1, %r1, 1;\n")));
  CHECK_FALSE(Own(only("setp.ne.s32 %p1, %r1, 0;\n"), {{64, 1, 1}, {32, 4, 1}}));
  CHECK_FALSE(Own(only("setp.ne.s32 %p1, %r8, 0;\n")));  // the block's number
}

TEST_CASE("rows of a loop that stays below the row's length") {
  const auto loop = [](const std::string& first, const std::string& compare) {
    return first +
           "mul.lo.s32 %r20, %r8, %r3;\nsetp.ge.s32 %p1, %r1, %r3;\n@%p1 bra done;\nagain:\n"
           "add.s32 %r21, %r20, %r1;\nmul.wide.s32 %rd3, %r21, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
           "st.global.u32 [%rd4], %r20;\nadd.s32 %r1, %r1, %r9;\n" +
           compare + "@%p2 bra again;\ndone:\n";
  };
  const std::string compare = "setp.lt.s32 %p2, %r1, %r3;\n";
  CHECK(Own(loop("", compare)));
  // Not bounded by the row's length, or not from the start.
  CHECK_FALSE(Own(loop("", "setp.lt.s32 %p2, %r1, 9999;\n")));
  CHECK_FALSE(Own(loop("", "setp.ne.s32 %p2, %r1, %r3;\n")));
  CHECK_FALSE(Own(loop("add.s32 %r1, %r1, -1;\n", compare)));
  CHECK_FALSE(Own(loop("shr.u32 %r1, %r1, 1;\n", compare)));
  CHECK_FALSE(Own(loop("", compare), {{64, 1, 1}, {128, 2, 1}}));
}

// Whether a launch of such blocks needs no checks of shared memory in the lean twin.
bool SharedOwn(const std::string& body, const LaunchShape& shape) {
  const RacePlan plan = PlanOf(body);
  const Arguments arguments;
  bool all = !plan.lean_shared.empty() && !plan.lean_checks;
  for (const std::vector<IndexForm>& forms : plan.lean_shared) {
    all = all &&
          ThreadsStayApart(forms, shape, LaunchParameters(std::as_bytes(std::span(&arguments, 1))),
                           Among::kThreadsOfBlock);
  }
  return all;
}

TEST_CASE("each thread's own element of a shared array, between barriers") {
  CHECK(SharedOwn(kWrite, {{9, 9, 1}, {128, 1, 1}}));
  CHECK_FALSE(SharedOwn(kWrite, {{9, 9, 1}, {128, 2, 1}}));
  // The neighbour's is read in the same interval, or behind a barrier.
  CHECK_FALSE(SharedOwn(kWrite + kRead, {{1, 1, 1}, {128, 1, 1}}));
  CHECK(SharedOwn(kWrite + kBarrier + kRead, {{1, 1, 1}, {128, 1, 1}}));
  CHECK_FALSE(SharedOwn("st.shared.u64 [%r2], %rd1;\n", {{1, 1, 1}, {128, 1, 1}}));
  CHECK_FALSE(SharedOwn("st.shared.u32 [%r5], %r1;\n", {{1, 1, 1}, {128, 1, 1}}));
  CHECK(SharedOwn("setp.ne.s32 %p1, %r1, 5;\n@!%p1 st.shared.u32 [%r5], %r1;\n",
                  {{1, 1, 1}, {128, 1, 1}}));
  // A number for each warp, from one lane or from all.
  const std::string warp =
      "shr.u32 %r11, %r1, 3;\nand.b32 %r12, %r11, 536870908;\nadd.s32 %r13, %r5, %r12;\n"
      "and.b32 %r14, %r1, 31;\nsetp.ne.s32 %p1, %r14, 0;\n";
  CHECK(SharedOwn(warp + "@%p1 bra skip;\nst.shared.u32 [%r13], %r1;\nskip:\n",
                  {{1, 1, 1}, {128, 1, 1}}));
  CHECK_FALSE(SharedOwn(warp + "st.shared.u32 [%r13], %r1;\n", {{1, 1, 1}, {128, 1, 1}}));
}

uint32_t SyncSites(const std::string& body) {
  auto module = Instrument(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 k_n)\n{\n"
      ".reg .pred %p<9>; .reg .b32 %r<40>;\nmov.u32 %r1, %tid.x;\nld.param.u32 %r3, [k_n];\n" +
          body + "\nret;\n}\n",
      Rewrite::kMemoryChecks, {.memory = false, .sync = true});
  REQUIRE(module.ok());
  return module->kernels.at(0).races.sync_sites;
}

TEST_CASE("barriers that all threads reach together are not checked") {
  const std::string shuffle = "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;\n";
  CHECK(SyncSites(kBarrier + shuffle + kBarrier) == 0);
  CHECK(SyncSites("setp.lt.s32 %p1, %r3, 7;\n@%p1 bra skip;\n" + kBarrier + "skip:\n") == 0);
  CHECK(SyncSites("setp.lt.s32 %p1, %r1, 7;\n@%p1 bra skip;\nskip:\n" + kBarrier) == 0);
  // One that some may miss makes the others count, too.
  CHECK(SyncSites("setp.lt.s32 %p1, %r1, 7;\n@%p1 bra skip;\n" + kBarrier + "skip:\n" + kBarrier) ==
        2);
  CHECK(SyncSites("setp.lt.s32 %p1, %r1, 7;\n@%p1 ret;\n" + kBarrier) == 1);
  CHECK(SyncSites("setp.lt.s32 %p1, %r1, 7;\n@%p1 exit;\n" + shuffle) == 1);
  CHECK(SyncSites("shfl.sync.bfly.b32 %r5, %r1, 1, 31, %r3;\n") == 1);
}

}  // namespace
}  // namespace ops_debug::shadow
