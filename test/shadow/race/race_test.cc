// What instrumented kernels record: each case is one pattern of accesses and synchronisation, right
// or wrong, run on the CPU device's executor.
#include <catch2/catch.hpp>

#include "test/shadow/race/race_run.h"

namespace ops_debug::shadow {
namespace {

// Entry `k(u64 p, u64 q)`: %rd1 = p, %rd2 = q, %r1 = %tid.x, %r2 = shared address of this thread's
// word in s[256], %r3 = of its neighbour's in the warp (lane ^ 1), %r4 = of the next warp's (^ 32),
// %rd3 = address of this thread's word in p, counted over the grid.
std::string Kernel(const std::string& body, const std::string& before = "") {
  return ".version 8.0\n.target sm_90\n.address_size 64\n" + before + R"(
.visible .entry k(.param .u64 k_p, .param .u64 k_q)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<9>;
.shared .align 16 .b8 s[1024];
ld.param.u64 %rd1, [k_p];
ld.param.u64 %rd2, [k_q];
mov.u32 %r1, %tid.x;
mov.u32 %r5, s;
shl.b32 %r6, %r1, 2;
add.s32 %r2, %r5, %r6;
xor.b32 %r7, %r6, 4;
add.s32 %r3, %r5, %r7;
xor.b32 %r8, %r6, 128;
add.s32 %r4, %r5, %r8;
mov.u32 %r9, %ctaid.x;
mov.u32 %r10, %ntid.x;
mad.lo.u32 %r11, %r9, %r10, %r1;
mul.wide.u32 %rd4, %r11, 4;
add.s64 %rd3, %rd1, %rd4;
)" + body +
         "\nret;\n}\n";
}

// Records of one launch with two buffers.
std::string Found(const std::string& body, const RaceLaunchOptions& options = {},
                  const std::string& before = "") {
  RaceRun run;
  run.Launch(Kernel(body, before), "k", {run.Buffer(65536), run.Buffer(65536)}, options);
  REQUIRE(run.plan().checked);
  return run.Text();
}

TEST_CASE("shared memory between warps: a barrier orders, without one both orders are conflicts") {
  CHECK(Found("st.shared.u32 [%r2], %r1;\nbar.sync 0;\nld.shared.u32 %r20, [%r4];").empty());
  CHECK(Found("st.shared.u32 [%r2], %r1;\nld.shared.u32 %r20, [%r4];") ==
        "read `ld.shared.u32 %r20, [%r4];` / write `st.shared.u32 [%r2], %r1;` same-block shared\n"
        "write `st.shared.u32 [%r2], %r1;` / read `ld.shared.u32 %r20, [%r4];` same-block "
        "shared\n");
}

TEST_CASE("a read before a barrier does not race with a write behind it, one behind it does") {
  CHECK(Found("ld.shared.u32 %r20, [%r4];\nbar.sync 0;\nst.shared.u32 [%r2], %r1;").empty());
  CHECK(Found("bar.sync 0;\nld.shared.u32 %r20, [s];\nst.shared.u32 [%r2], %r1;") ==
        "read `ld.shared.u32 %r20, [s];` / write `st.shared.u32 [%r2], %r1;` same-block shared\n");
}

TEST_CASE("lanes of a warp: __syncwarp orders, being in one warp or shuffling does not") {
  const std::string write = "st.shared.u32 [%r2], %r1;\n", read = "ld.shared.u32 %r20, [%r3];";
  CHECK(Found(write + "bar.warp.sync -1;\n" + read).empty());
  const std::string race =
      "write `st.shared.u32 [%r2], %r1;` / read `ld.shared.u32 %r20, [%r3];` same-warp shared\n";
  CHECK(Found(write + read) == race);
  CHECK(Found(write + "shfl.sync.idx.b32 %r21, %r1, 0, 31, -1;\n" + read) == race);
}

TEST_CASE("warp barriers of some lanes order those lanes, and prove nothing about others") {
  const std::string mask =
      "and.b32 %r21, %r1, 16;\nsetp.eq.s32 %p1, %r21, 0;\n"
      "selp.b32 %r22, 0xffff, 0xffff0000, %p1;\nst.shared.u32 [%r2], %r1;\nbar.warp.sync %r22;\n";
  CHECK(Found(mask + "ld.shared.u32 %r20, [%r3];").empty());
  CHECK(Found(mask + "xor.b32 %r23, %r6, 64;\nadd.s32 %r24, %r5, %r23;\n"
                     "ld.shared.u32 %r20, [%r24];") ==
        "write `st.shared.u32 [%r2], %r1;` / read `ld.shared.u32 %r20, [%r24];` same-warp shared "
        "unproven\n");
}

TEST_CASE("writes of the same value are told apart from those of different ones") {
  CHECK(Found("st.shared.u32 [s], 7;", {.block = {32, 1, 1}}) ==
        "write `st.shared.u32 [s], 7;` / write `st.shared.u32 [s], 7;` same-warp shared "
        "same-value\n");
  CHECK(Found("st.shared.u32 [s], %r1;", {.block = {32, 1, 1}}) ==
        "write `st.shared.u32 [s], %r1;` / write `st.shared.u32 [s], %r1;` same-warp shared\n");
}

TEST_CASE("neighbouring bytes of a word are no conflict, the same byte is") {
  const std::string byte = "cvt.u16.u32 %h1, %r1;\nadd.s32 %r20, %r5, %r1;\n";
  CHECK(Found(byte + "st.shared.u8 [%r20], %h1;").empty());
  CHECK(Found(byte + "st.shared.u8 [%r20], %h1;\nbar.sync 0;\nld.shared.u32 %r21, [s];").empty());
  CHECK(Found(byte + "and.b32 %r21, %r20, -2;\nst.shared.u8 [%r21], %h1;") ==
        "write `st.shared.u8 [%r21], %h1;` / write `st.shared.u8 [%r21], %h1;` same-warp shared\n");
}

TEST_CASE("vectors: every word of them counts, with its value") {
  const std::string address =
      "shl.b32 %r20, %r1, 2;\nand.b32 %r20, %r20, 0x3f0;\nadd.s32 %r20, %r5, %r20;\n";
  CHECK(Found(address + "st.shared.v4.u32 [%r20], {1, 2, 3, 4};") ==
        "write `st.shared.v4.u32 [%r20], {1, 2, 3, 4};` / write `st.shared.v4.u32 [%r20], {1, 2, "
        "3, 4};` same-warp shared same-value\n");
  CHECK(Found(address + "st.shared.v4.u32 [%r20], {1, 2, 3, %r1};") ==
        "write `st.shared.v4.u32 [%r20], {1, 2, 3, %r1};` / write `st.shared.v4.u32 [%r20], {1, 2, "
        "3, %r1};` same-warp shared\n"
        "write `st.shared.v4.u32 [%r20], {1, 2, 3, %r1};` / write `st.shared.v4.u32 [%r20], {1, 2, "
        "3, %r1};` same-warp shared same-value\n");
}

TEST_CASE("global memory: barriers order a block's threads, nothing orders blocks") {
  const std::string write = "st.global.u32 [%rd3], %r1;\n";
  CHECK(Found(write + "bar.sync 0;\nxor.b32 %r20, %r11, 32;\nmul.wide.u32 %rd5, %r20, 4;\n"
                      "add.s64 %rd6, %rd1, %rd5;\nld.global.u32 %r21, [%rd6];",
              {.grid = {4, 1, 1}})
            .empty());
  CHECK(Found(write + "bar.sync 0;\nxor.b32 %r20, %r11, 64;\nmul.wide.u32 %rd5, %r20, 4;\n"
                      "add.s64 %rd6, %rd1, %rd5;\nsetp.eq.s32 %p1, %r9, 0;\n"
                      "@%p1 bra done;\nld.global.u32 %r21, [%rd6];\ndone:",
              {.grid = {2, 1, 1}}) ==
        "write `st.global.u32 [%rd3], %r1;` / read `ld.global.u32 %r21, [%rd6];` other-block "
        "global\n");
}

TEST_CASE(
    "atomics do not conflict with each other, but with plain accesses and too narrow scopes") {
  CHECK(Found("red.global.add.u32 [%rd1], 1;\natom.global.add.u32 %r20, [%rd1], 1;",
              {.grid = {2, 1, 1}})
            .empty());
  CHECK(Found("atom.shared.add.u32 %r20, [s], 1;").empty());
  CHECK(Found("setp.eq.s32 %p1, %r1, 0;\n@%p1 st.shared.u32 [s], 0;\n"
              "atom.shared.add.u32 %r20, [s], 1;",
              {.block = {32, 1, 1}}) ==
        "write `@%p1 st.shared.u32 [s], 0;` / atomic `atom.shared.add.u32 %r20, [s], 1;` same-warp "
        "shared\n");
  CHECK(Found("red.cta.global.add.u32 [%rd1], 1;", {.grid = {2, 1, 1}, .block = {32, 1, 1}}) ==
        "atomic `red.cta.global.add.u32 [%rd1], 1;` / atomic `red.cta.global.add.u32 [%rd1], 1;` "
        "other-block global scope\n");
}

TEST_CASE("volatile flags do not conflict with each other") {
  CHECK(Found("setp.eq.s32 %p1, %r1, 0;\n@%p1 st.volatile.shared.u32 [s], 1;\n"
              "ld.volatile.shared.u32 %r20, [s];")
            .empty());
}

// Block 0 hands a word over to block 1 by a flag in q.
std::string HandOver(const std::string& release, const std::string& acquire) {
  return "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra done;\nsetp.ne.s32 %p2, %r9, 0;\n@%p2 bra reader;\n"
         "st.global.u32 [%rd1], 5;\n" +
         release + "bra done;\nreader:\n" + acquire +
         "setp.eq.s32 %p3, %r20, 0;\n@%p3 bra reader;\nld.global.u32 %r21, [%rd1];\ndone:\n";
}

TEST_CASE("a flag with release and acquire is unproven; if one of them is missing, it is a race") {
  const RaceLaunchOptions two{.grid = {2, 1, 1}};
  const std::string race =
      "write `st.global.u32 [%rd1], 5;` / read `ld.global.u32 %r21, [%rd1];` other-block global";
  const std::string release = "st.release.gpu.global.u32 [%rd2], 1;\n";
  const std::string relaxed_store = "st.relaxed.gpu.global.u32 [%rd2], 1;\n";
  const std::string acquire = "ld.acquire.gpu.global.u32 %r20, [%rd2];\n";
  const std::string relaxed_load = "ld.relaxed.gpu.global.u32 %r20, [%rd2];\n";
  CHECK(Found(HandOver(release, acquire), two) == race + " unproven\n");
  CHECK(Found(HandOver("membar.gl;\n" + relaxed_store, relaxed_load + "membar.gl;\n"), two) ==
        race + " unproven\n");
  CHECK(Found(HandOver(relaxed_store, acquire), two) == race + "\n");
  CHECK(Found(HandOver(release, relaxed_load), two) == race + "\n");
  // The fence does not reach the other block.
  CHECK(Found(HandOver("membar.cta;\n" + relaxed_store, relaxed_load + "membar.gl;\n"), two) ==
        race + "\n");
}

// Warps 0 and 1 of four produce, 2 and 3 consume, three rounds.
std::string Pipeline(const std::string& before_full, const std::string& behind_full) {
  return "and.b32 %r25, %r6, 255;\nadd.s32 %r26, %r5, %r25;\nmov.u32 %r27, 0;\n"
         "setp.ge.u32 %p1, %r1, 64;\n@%p1 bra consumer;\nproducer:\nbar.sync 2, 128;\n" +
         before_full + "bar.arrive 1, 128;\n" + behind_full +
         "add.s32 %r27, %r27, 1;\nsetp.lt.u32 %p2, %r27, 3;\n@%p2 bra producer;\nbra done;\n"
         "consumer:\nbar.arrive 2, 128;\nbar.sync 1, 128;\nxor.b32 %r28, %r25, 252;\n"
         "add.s32 %r29, %r5, %r28;\nld.shared.u32 %r20, [%r29];\nadd.s32 %r27, %r27, 1;\n"
         "setp.lt.u32 %p2, %r27, 3;\n@%p2 bra consumer;\ndone:\n";
}

TEST_CASE("named barriers with counts order the warps that arrive and wait there") {
  const RaceLaunchOptions four{.block = {128, 1, 1}};
  const std::string write = "st.shared.u32 [%r26], %r27;\n";
  CHECK(Found(Pipeline(write, ""), four).empty());
  CHECK(Found(Pipeline("", write), four) ==
        "write `st.shared.u32 [%r26], %r27;` / read `ld.shared.u32 %r20, [%r29];` same-block "
        "shared\n");
}

TEST_CASE("a count of the whole block is a barrier of the block, for any number of rounds") {
  CHECK(Found("mov.u32 %r20, 0;\nagain:\nst.shared.u32 [%r2], %r20;\nbar.sync 1, %r10;\n"
              "ld.shared.u32 %r21, [%r4];\nbar.sync 1, %r10;\nadd.s32 %r20, %r20, 1;\n"
              "setp.lt.u32 %p1, %r20, 40;\n@%p1 bra again;")
            .empty());
}

TEST_CASE("functions take part: their barriers and accesses count") {
  const auto function = [](const std::string& behind) {
    return ".func put(.param .b32 a, .param .b32 v)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [a];\n"
           "ld.param.u32 %r2, [v];\nst.shared.u32 [%r1], %r2;\n" +
           behind + "ret;\n}\n";
  };
  const std::string body =
      "{\n.param .b32 a;\n.param .b32 v;\nst.param.b32 [a], %r2;\nst.param.b32 [v], %r1;\n"
      "call put, (a, v);\n}\nld.shared.u32 %r20, [%r4];";
  CHECK(Found(body, {}, function("bar.sync 0;\n")).empty());
  CHECK(Found(body, {}, function("")) ==
        "read `ld.shared.u32 %r20, [%r4];` / write `st.shared.u32 [%r1], %r2;` same-block shared\n"
        "write `st.shared.u32 [%r1], %r2;` / read `ld.shared.u32 %r20, [%r4];` same-block "
        "shared\n");
}

TEST_CASE("launches in stream order do not conflict; those that nothing orders do") {
  const std::string write = Kernel("st.global.u32 [%rd3], %r1;");
  const std::string read = Kernel("ld.global.u32 %r20, [%rd3];");
  for (const bool unordered : {false, true}) {
    RaceRun run;
    const uint64_t buffer = run.Buffer(65536);
    run.Launch(write, "k", {buffer, buffer}, {.grid = {3, 1, 1}});
    run.Launch(read, "k", {buffer, buffer}, {.grid = {3, 1, 1}, .unordered = unordered});
    CHECK(run.Text() ==
          (unordered ? "write `st.global.u32 [%rd3], %r1;` / read `ld.global.u32 %r20, [%rd3];` "
                       "other-launch global\n"
                     : ""));
  }
}

TEST_CASE("copies and memsets take part, to the byte") {
  const std::string read = Kernel("ld.global.u32 %r20, [%rd3];");
  for (const bool unordered : {false, true}) {
    RaceRun run;
    const uint64_t buffer = run.Buffer(65536);
    run.Launch(read, "k", {buffer, buffer}, {.grid = {3, 1, 1}});
    run.Operation(buffer, 1000, true, unordered);
    run.Operation(buffer + 1000, 8, false, true);
    const std::string race = "read `ld.global.u32 %r20, [%rd3];` / write ? other-launch global\n";
    CHECK(run.Text() == (unordered ? race : ""));
  }
  RaceRun run;
  const uint64_t buffer = run.Buffer(4096);
  run.Operation(buffer, 1001, true, false);
  run.Operation(buffer + 1001, 3, true, true);
  CHECK(run.Text().empty());
  run.Launch(Kernel("ld.global.u32 %r20, [%rd1+1000];"), "k", {buffer, buffer},
             {.unordered = true});
  CHECK(run.Text() == "write ? / read `ld.global.u32 %r20, [%rd1+1000];` other-launch global\n");
}

TEST_CASE("a slot of shared cells that another block had before tells nothing about this one") {
  RaceRun run;
  const std::string ptx = Kernel(
      "setp.eq.s32 %p1, %r9, 0;\n@%p1 st.shared.u32 [s], %r1;\nbar.sync 0;\n"
      "ld.shared.u32 %r20, [s];\n");
  run.Launch(ptx, "k", {run.Buffer(4096), run.Buffer(4096)},
             {.grid = {200, 1, 1}, .block = {1, 1, 1}});
  CHECK(run.Text().empty());
}

TEST_CASE("accesses through an untracked parameter are not looked at") {
  const std::string body = "st.global.u32 [%rd1], %r1;\nld.global.u32 %r20, [%rd2];";
  CHECK_FALSE(Found(body).empty());
  CHECK(Found(body, {.tracked = 0}).empty());
  RaceRun run;
  run.Launch(Kernel(body), "k", {run.Buffer(4096), run.Buffer(4096)});
  REQUIRE(run.plan().slots.size() == 2);
  CHECK(run.plan().slots[0].writes);
  CHECK_FALSE(run.plan().slots[0].reads);
  CHECK(run.plan().slots[1].reads);
  CHECK_FALSE(run.plan().slots[1].writes);
  CHECK_FALSE(run.plan().writes_elsewhere);
}

TEST_CASE("the other checks of memory change nothing about what is found") {
  RaceRun run;
  run.Launch(Kernel("st.shared.u32 [%r2], %r1;\nld.shared.u32 %r20, [%r3];"), "k",
             {run.Buffer(4096), run.Buffer(4096)}, {}, {.memory = true, .races = true});
  CHECK(run.Text() ==
        "write `st.shared.u32 [%r2], %r1;` / read `ld.shared.u32 %r20, [%r3];` same-warp shared\n");
}

}  // namespace
}  // namespace ops_debug::shadow
