// Barriers that not all threads reach, as instrumented kernels see them.
#include <catch2/catch.hpp>

#include "test/shadow/race/race_run.h"

namespace ops_debug::shadow {
namespace {

// %r1 = %tid.x, %p1: lane is below 16, %p2: thread is below 32.
std::string Found(const std::string& body, const RaceLaunchOptions& options = {}) {
  RaceRun run;
  run.Launch(
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 k_p)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<20>;\n.reg .b64 "
      "%rd<4>;\n"
      "mov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 31;\nsetp.lt.u32 %p1, %r2, 16;\n"
      "setp.lt.u32 %p2, %r1, 32;\n" +
          body + "\nret;\n}\n",
      "k", {run.Buffer(4096)}, options, {.memory = false, .sync = true});
  REQUIRE(run.plan().checked);
  return run.Text();
}

TEST_CASE("barriers that all threads reach are silent, in loops and behind branches that join") {
  CHECK(Found("mov.u32 %r3, 0;\nagain:\n@%p1 bra low;\nadd.s32 %r4, %r1, 1;\nlow:\nbar.sync 0;\n"
              "bar.warp.sync -1;\nshfl.sync.idx.b32 %r5, %r1, 0, 31, -1;\nadd.s32 %r3, %r3, 1;\n"
              "setp.lt.u32 %p3, %r3, 5;\n@%p3 bra again;",
              {.grid = {3, 1, 1}, .block = {80, 1, 1}})
            .empty());
}

TEST_CASE("a lane that comes late, because it waits for another block, is no fault") {
  CHECK(Found("ld.param.u64 %rd1, [k_p];\nsetp.ne.s32 %p3, %r1, 5;\n@%p3 bra join;\n"
              "atom.global.add.u32 %r3, [%rd1], 1;\nspin:\nld.volatile.global.u32 %r3, [%rd1];\n"
              "setp.lt.u32 %p4, %r3, 2;\n@%p4 bra spin;\njoin:\nbar.sync 0;",
              {.grid = {2, 1, 1}, .cooperative = true})
            .empty());
}

TEST_CASE("half a warp at a barrier, the other half at another one") {
  CHECK(Found("@%p1 bra low;\nbar.sync 0;\nbra join;\nlow:\nbarrier.sync 0;\njoin:",
              {.block = {64, 1, 1}})
            .find("divergent `bar") == 0);
}

TEST_CASE("warps that meet at two barriers of the text") {
  CHECK(Found("@%p2 bra first;\nbar.sync 0;\nbra join;\nfirst:\nbarrier.sync 0;\njoin:") ==
        "divergent `bar.sync 0;` / `barrier.sync 0;`\n");
}

TEST_CASE("warps may meet at two barriers that say how many come") {
  CHECK(Found("@%p2 bra first;\nbarrier.sync 1, 64;\nbra join;\nfirst:\nbarrier.sync 1, 64;\njoin:")
            .empty());
}

TEST_CASE("threads that returned before a barrier, of the same warp or of another one") {
  CHECK(Found("@%p2 ret;\nbar.sync 0;") == "exited `bar.sync 0;` missing 32\n");
  CHECK(Found("@!%p2 ret;\nbar.sync 0;").find("exited `bar.sync 0;`") == 0);
  CHECK(Found("bar.sync 0;\n@%p2 ret;").empty());
}

TEST_CASE("masks: without the lane itself, or with lanes that returned") {
  CHECK(Found("bar.warp.sync 0xffff;", {.block = {16, 1, 1}}).empty());
  CHECK(Found("@!%p1 bra high;\nbar.warp.sync 0xffff;\nhigh:", {.block = {32, 1, 1}}).empty());
  CHECK(Found("@!%p1 ret;\nshfl.sync.idx.b32 %r5, %r1, 0, 31, -1;", {.block = {32, 1, 1}}) ==
        "mask `shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;` missing 16\n");
}

}  // namespace
}  // namespace ops_debug::shadow
