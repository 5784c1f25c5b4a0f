// Faults of barriers, masks and mbarriers are found where they are, and legal uses are silent.
#include <catch2/catch.hpp>

#include "test/emulator/checks/checked_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;
using Catch::StartsWith;

// ---- barriers of a block

TEST_CASE("half a warp at a barrier, the others go on: divergent") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 16; @%p1 bra L; bar.sync 0; L: st.global.u64 [%rd3], 1;") ==
        "divergent-barrier at `bar.sync 0;` block (0,0,0) thread (0,0,0) x1: 16 of 1 from (0,0,0) "
        "wait at barrier 0 for 32 threads at `bar.sync 0;`; 16 of 1 from (16,0,0) returned, "
        "splitting a warp at `ret;`");
}

TEST_CASE("a whole warp goes around a barrier: divergent") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; L: st.global.u64 [%rd3], 1;",
                    {.block = {64, 1, 1}}),
             StartsWith("divergent-barrier at `bar.sync 0;`"));
}

TEST_CASE("whole warps that return early: exited threads") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; st.global.u64 [%rd3], 1; L: ",
               {.grid = {3, 1, 1}, .block = {96, 1, 1}}) ==
        "exited-threads at `bar.sync 0;` block (0,0,0) thread (0,0,0) x3: 64 of 1 from (32,0,0) "
        "returned at `ret;`; 32 of 1 from (0,0,0) wait at barrier 0 for 96 threads at `bar.sync "
        "0;`");
}

TEST_CASE("threads that left before two barriers are one fault") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; st.global.u64 [%rd3], 1; "
                    "barrier.sync 0; L: ",
                    {.block = {64, 1, 1}}),
             StartsWith("exited-threads at `bar.sync 0;` block (0,0,0) thread (0,0,0) x2") &&
                 !Contains("\n"));
}

TEST_CASE("an early return that splits a warp says so") {
  CHECK_THAT(
      Faults("setp.ge.u32 %p1, %r1, 40; @%p1 bra L; bar.sync 0; st.global.u64 [%rd3], 1; L: ",
             {.block = {64, 1, 1}}),
      StartsWith("exited-threads at `bar.sync 0;`") &&
          Contains("24 of 1 from (40,0,0) returned, splitting a warp"));
}

TEST_CASE("lanes of one warp at different barrier instructions: divergent") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 16; @%p1 bra H; bar.sync 0; bra L; H: barrier.sync "
                    "0; L: st.global.u64 [%rd3], 1;"),
             StartsWith("divergent-barrier at `bar.sync 0;`"));
}

TEST_CASE("lanes of one warp at different unaligned barriers are legal") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 16; @%p1 bra H; barrier.sync 0; bra L; H: barrier.sync 0; "
               "L: st.global.u64 [%rd3], 1;") == "silent");
}

TEST_CASE("warps that meet from different instructions as often as each other are legal") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra H; bar.sync 0; bra L; H: bar.sync 0; L: "
               "bar.sync 0; st.global.u64 [%rd3], 1;",
               {.block = {64, 1, 1}}) == "silent");
}

TEST_CASE("a barrier of the whole block at two lines of the program: divergent; copies are not") {
  const auto body = [](const std::string& first, const std::string& second) {
    return "setp.ge.u32 %p1, %r1, 32; @%p1 bra H;\n.loc 1 " + first +
           " 3\nbar.sync 0; bra L; H:\n.loc 1 " + second +
           " 3\nbar.sync 0; L: st.global.u64 [%rd3], 1;";
  };
  RunOptions options{.block = {64, 1, 1}};
  options.preamble = ".file 1 \"a.cu\"\n";
  CHECK_THAT(Faults(body("7", "9"), options),
             StartsWith("divergent-barrier at `bar.sync 0;` block (0,0,0) thread (0,0,0) x1: 32 of "
                        "1 from (0,0,0) wait at barrier 0 for 64 threads"));
  CHECK(Faults(body("7", "7"), options) == "silent");
}

TEST_CASE("a barrier in a branch for some warps pairs with the next one: divergent there") {
  const std::string faults = Faults(
      "setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; L: st.global.u64 [%rd3], 1; "
      "barrier.sync.aligned 0; st.global.u64 [%rd3], 2;",
      {.block = {64, 1, 1}});
  CHECK_THAT(faults, StartsWith("divergent-barrier at `bar.sync 0;`") ||
                         StartsWith("divergent-barrier at `barrier.sync.aligned 0;`"));
  CHECK_THAT(faults,
             Contains("32 of 1 from (0,0,0) wait at barrier 0 for 64 threads at `bar.sync 0;`"));
  CHECK_THAT(faults, Contains("32 of 1 from (32,0,0) wait at barrier 0 for 64 threads at "
                              "`barrier.sync.aligned 0;`"));
  CHECK_THAT(faults, Contains("32 of 1 from (32,0,0) returned at `ret;`"));
}

TEST_CASE("named barriers of producers and consumers are legal") {
  CHECK(Faults(R"(
    setp.ge.u32 %p1, %r1, 32; mov.u32 %r2, 0; @%p1 bra CONSUME;
    PRODUCE: bar.sync 2, 64; st.global.u64 [%rd3], 1; bar.arrive 1, 64; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 5; @%p2 bra PRODUCE; bra DONE;
    CONSUME: bar.arrive 2, 64; bar.sync 1, 64; st.global.u64 [%rd3], 2; bar.sync 3, 32;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra CONSUME;
    DONE: )",
               {.block = {64, 1, 1}}) == "silent");
}

TEST_CASE("a barrier in a uniform branch and in a loop is legal") {
  CHECK(Faults(R"(
    mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; bar.sync 0; L: mov.u32 %r2, 0;
    LOOP: bar.sync 0; bar.red.popc.u32 %r4, 1, %p1; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 7;
    @%p2 bra LOOP; st.global.u64 [%rd3], 2;)",
               {.grid = {2, 1, 1}, .block = {100, 1, 1}}) == "silent");
}

TEST_CASE("divergence that ends before the barrier is legal") {
  CHECK(Faults(R"(
    and.b32 %r2, %r1, 3; LOOP: setp.eq.u32 %p1, %r2, 0; @%p1 bra L; sub.u32 %r2, %r2, 1; bra LOOP;
    L: bar.sync 0; st.global.u64 [%rd3], 2;)",
               {.block = {64, 1, 1}}) == "silent");
}

TEST_CASE("a count that is no multiple of the warp size") {
  CHECK_THAT(Faults("bar.arrive 1, 48;", {.block = {64, 1, 1}}),
             StartsWith("barrier-count at `bar.arrive 1, 48;`") &&
                 Contains("\"barrier 1 is to wait for 48 threads, which is no multiple of the warp "
                          "size\""));
}

TEST_CASE("different counts at one barrier") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra H; bar.sync 1, 96; bra L; H: bar.arrive 1, "
                    "64; L: ",
                    {.block = {96, 1, 1}}),
             StartsWith("barrier-count") &&
                 Contains("threads meet at barrier 1 with different counts, 96 and 64"));
}

TEST_CASE("a count of the whole block from different lines is legal") {
  RunOptions options{.block = {64, 1, 1}};
  options.preamble = ".file 1 \"a.cu\"\n";
  CHECK(
      Faults(
          "setp.ge.u32 %p1, %r1, 32; @%p1 bra H;\n.loc 1 7 3\nbar.sync 1, 64; bra L; H:\n.loc 1 9 "
          "3\nbar.arrive 1, 64; L: st.global.u64 [%rd3], 1;",
          options) == "silent");
}

TEST_CASE("no count and the count of the whole block are the same") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra H; bar.sync 1, 96; bra L; H: bar.sync 1; L: ",
               {.block = {70, 1, 1}}) == "silent");
}

TEST_CASE("a count beyond the block") {
  CHECK_THAT(Faults("bar.sync 1, 128;", {.block = {64, 1, 1}}),
             StartsWith("barrier-count at `bar.sync 1, 128;`") &&
                 Contains("barrier 1 is to wait for 128 threads, but the block has 64") &&
                 Contains("deadlock at `bar.sync 1, 128;`"));
}

TEST_CASE("a warp that arrives twice in one phase") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.arrive 1, 96; bar.arrive 1, 96; L: ",
                    {.block = {96, 1, 1}}),
             Contains("a warp arrives again at barrier 1, which has not completed since it arrived "
                      "before"));
}

TEST_CASE("lanes that name different barriers in one instruction") {
  CHECK_THAT(Faults("and.b32 %r2, %r1, 1; bar.arrive %r2, 64;", {.block = {64, 1, 1}}),
             Contains("lanes of one warp name different barriers or thread counts"));
}

TEST_CASE("half a warp at a counted barrier while the other half lives on: divergent") {
  CHECK_THAT(Faults(R"(
    and.b32 %r2, %r1, 31; setp.ge.u32 %p1, %r2, 16; @%p1 bra L; bar.sync 1, 32;
    L: st.global.u64 [%rd3], 1; bar.sync 0; st.global.u64 [%rd3], 2;)",
                    {.block = {64, 1, 1}}),
             StartsWith("divergent-barrier at `bar.sync 1, 32;`") && Contains("are elsewhere"));
}

// ---- operations between lanes

TEST_CASE("partial masks that name exactly the lanes are legal") {
  CHECK(Faults(R"(
    setp.ge.u32 %p1, %r1, 16; @%p1 bra H; bar.warp.sync 0xffff;
    shfl.sync.down.b32 %r5, %r1, 1, 31, 0xffff; bra L;
    H: bar.warp.sync 0xffff0000; vote.sync.ballot.b32 %r5, %p1, 0xffff0000;
    L: bar.warp.sync 0xffffffff; redux.sync.add.s32 %r5, %r1, 0xffffffff; st.global.u64 [%rd3], 1;)") ==
        "silent");
}

TEST_CASE("tiles of a warp that act together with masks of their own are legal") {
  CHECK(Faults(R"(
    setp.ge.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff0000, 0xffff, %p1;
    shfl.sync.bfly.b32 %r5, %r1, 8, 31, %r2; vote.sync.any.pred %p2, %p1, %r2; bar.warp.sync %r2;
    st.global.u64 [%rd3], 1;)") == "silent");
}

TEST_CASE("a full mask behind an early return is legal, and in a warp that is not full") {
  CHECK(Faults(R"(setp.ge.u32 %p1, %r1, 40; @%p1 bra L; shfl.sync.down.b32 %r5, %r1, 1, 31, -1;
    bar.warp.sync -1; st.global.u64 [%rd3], 1; L: )",
               {.block = {50, 1, 1}}) == "silent");
}

TEST_CASE("a mask that does not name the lane itself") {
  CHECK_THAT(Faults("shfl.sync.down.b32 %r5, %r1, 1, 31, 0xffff;"),
             StartsWith("warp-mask at `shfl.sync.down.b32 %r5, %r1, 1, 31, 0xffff;`") &&
                 Contains("thread (16,0,0)") &&
                 Contains("lane 16 names the lanes 0xffff, which it is not one of"));
}

TEST_CASE("lanes of one group with different masks") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff0000, 0xffffffff, %p1; "
                    "bar.warp.sync %r2; st.global.u64 [%rd3], 1;"),
             StartsWith("warp-mask at `bar.warp.sync %r2;`") &&
                 Contains("with different masks, 0xffffffff and 0xffff0000"));
}

TEST_CASE("a mask that names lanes which go around") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 16; @%p1 bra L; bar.warp.sync -1; L: st.global.u64 "
                    "[%rd3], 1;"),
             StartsWith("warp-mask at `bar.warp.sync -1;`") &&
                 Contains("the mask names 16 lanes that do not execute it"));
}

TEST_CASE("a matrix instruction of half a warp") {
  CHECK_THAT(Faults(R"(setp.ge.u32 %p1, %r1, 16; @%p1 bra L;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r2,%r3}, {%r4},
    {%f1,%f2,%f3,%f4}; L: st.global.u64 [%rd3], 1;)"),
             StartsWith("warp-mask at `mma.sync.aligned") &&
                 Contains("only 16 of 32 lanes of the warp execute an instruction that all of them "
                          "must execute together"));
}

// ---- clusters

TEST_CASE("cluster barriers that all blocks execute are legal") {
  CHECK(Faults(R"(
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r2, 0;
    LOOP: barrier.cluster.arrive.release; st.global.u64 [%rd3], 1; barrier.cluster.wait.acquire;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra LOOP;)",
               {.grid = {4, 1, 1}, .block = {64, 1, 1}, .cluster = {2, 1, 1}}) == "silent");
}

TEST_CASE("a block that makes fewer cluster barriers than the others") {
  CHECK_THAT(Faults(R"(
    mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 1; @%p1 bra L;
    barrier.cluster.arrive; barrier.cluster.wait; st.global.u64 [%rd3], 1; L: )",
                    {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}),
             StartsWith("exited-threads at `barrier.cluster.arrive;`") &&
                 Contains("a whole block has exited while others wait for the cluster"));
}

TEST_CASE("blocks that meet at different cluster barriers") {
  CHECK_THAT(Faults(R"(
    mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 1; @%p1 bra L;
    barrier.cluster.arrive; barrier.cluster.wait; st.global.u64 [%rd3], 1;
    L: barrier.cluster.arrive.release; barrier.cluster.wait; st.global.u64 [%rd3], 2;)",
                    {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}),
             StartsWith("divergent-barrier at `barrier.cluster.arrive") &&
                 Contains("they meet at different ones"));
}

TEST_CASE("a thread that arrives twice at the cluster's barrier, and one that never does") {
  CHECK_THAT(Faults("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;",
                    {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}),
             Contains("a thread arrives twice at the barrier of its cluster"));
  CHECK_THAT(Faults("barrier.cluster.wait;", {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}),
             Contains("waits at the barrier of its cluster without having arrived"));
}

// ---- mbarriers

const std::string kShared = ".shared .align 8 .b64 bar; .shared .align 8 .b64 other;\n";

TEST_CASE("an mbarrier that nobody has initialised") {
  CHECK(Faults(kShared + "mbarrier.arrive.shared.b64 %rd5, [bar];", {.block = {1, 1, 1}}) ==
        "uninitialised-mbarrier at `mbarrier.arrive.shared.b64 %rd5, [bar];` block (0,0,0) thread "
        "(0,0,0) x1 \"mbarrier.arrive on the mbarrier at shared address 0x0, which no "
        "mbarrier.init has initialised\"");
}

TEST_CASE("an mbarrier whose bytes were overwritten") {
  CHECK_THAT(Faults(kShared + R"(
    mbarrier.init.shared.b64 [bar], 1; st.shared.f32 [bar+4], 0fBF800000;
    mbarrier.arrive.shared.b64 %rd5, [bar];)",
                    {.block = {1, 1, 1}}),
             StartsWith("invalid-mbarrier at `mbarrier.arrive.shared.b64 %rd5, [bar];`") &&
                 Contains("whose bytes were overwritten since mbarrier.init"));
}

TEST_CASE("an mbarrier after its end, and a second init without one") {
  CHECK_THAT(Faults(kShared + "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; "
                              "mbarrier.arrive.shared.b64 %rd5, [bar];",
                    {.block = {1, 1, 1}}),
             Contains("which mbarrier.inval has ended"));
  CHECK_THAT(
      Faults(kShared + "mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [bar], 1;",
             {.block = {1, 1, 1}}),
      StartsWith("invalid-mbarrier at `mbarrier.init") && Contains("which is in use"));
  CHECK(Faults(kShared + "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; "
                         "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar];",
               {.block = {1, 1, 1}}) == "silent");
}

TEST_CASE("more arrivals than announced") {
  CHECK_THAT(Faults(kShared + "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %rd5, "
                              "[bar], 2;",
                    {.block = {1, 1, 1}}),
             StartsWith("invalid-mbarrier") && Contains("which expects 1 more arrival(s)"));
}

// ---- deadlocks

TEST_CASE("warps at different barriers: who waits where, as an event") {
  CHECK(Faults("setp.ge.u32 %p1, %r1, 64; @%p1 bra H; bar.sync 1; bra L; H: bar.sync 2; L: ",
               {.block = {96, 1, 1}}) ==
        "deadlock at `bar.sync 1;` block (0,0,0) thread (0,0,0) x1: 64 of 1 from (0,0,0) wait for "
        "barrier 1 of their block, at which 64 of 96 threads have arrived at `bar.sync 1;`; 32 of "
        "1 from (64,0,0) wait for barrier 2 of their block, at which 32 of 96 threads have arrived "
        "at `bar.sync 2;`");
}

TEST_CASE("a wait for a phase that never completes") {
  CHECK_THAT(Faults(kShared + R"(
    mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %rd5, [bar];
    L: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra L;)",
                    {.block = {1, 1, 1}}),
             StartsWith("deadlock at `mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;`") &&
                 Contains("which still expects 1 arrival(s)"));
}

TEST_CASE("blocks that wait for one that cannot start") {
  CHECK_THAT(Faults(R"(
    atom.add.global.u32 %r5, [%rd2], 1;
    SPIN: ld.volatile.global.u32 %r5, [%rd2]; setp.lt.u32 %p2, %r5, 9; @%p2 bra SPIN;)",
                    {.grid = {9, 1, 1}, .block = {1, 1, 1}, .in = {0}, .resident_blocks = 8}),
             Contains("deadlock at `ld.volatile.global.u32 %r5, [%rd2];`") &&
                 Contains("8 of 8 from (0,0,0) spin in a loop that reads global address") &&
                 Contains("1 of 1 from (0,0,0) never started: the device holds 8 blocks of this "
                          "kernel at a time, and this is no cooperative launch"));
}

TEST_CASE("threads that left are named in a deadlock") {
  CHECK_THAT(Faults("setp.ge.u32 %p1, %r1, 32; @%p1 bra L; barrier.sync 3, 64; L: ",
                    {.block = {64, 1, 1}}),
             StartsWith("deadlock at `barrier.sync 3, 64;`") &&
                 Contains("32 of 1 from (32,0,0) returned at `ret;`"));
}

}  // namespace
}  // namespace ops_debug::emulator
