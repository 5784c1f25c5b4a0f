// Chosen schedules: each seed is one run, always the same; different seeds look at different
// interleavings; correct programs stay correct under all of them.
#include <catch2/catch.hpp>
#include <set>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

// Each thread notes which value of a shared counter it got: the order of all threads.
constexpr char kTicket[] = R"(
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
  atom.add.global.u32 %r5, [%rd2], 1;
  mul.wide.u32 %rd4, %r4, 8; add.u64 %rd4, %rd4, %rd1;
  cvt.u64.u32 %rd5, %r5; st.global.u64 [%rd4], %rd5;)";

RunOptions Tickets(uint64_t seed) {
  return {.grid = {6, 1, 1}, .block = {64, 1, 1}, .in = {0}, .schedule_seed = seed};
}

TEST_CASE("a seed always gives the same run") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RunResult first = RunBody(kTicket, Tickets(seed));
    const RunResult second = RunBody(kTicket, Tickets(seed));
    REQUIRE(first.outcome.ok);
    CHECK(first.out == second.out);
    CHECK(first.outcome.thread_instructions == second.outcome.thread_instructions);
  }
}

TEST_CASE("seeds differ") {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) orders.insert(RunBody(kTicket, Tickets(seed)).out);
  CHECK(orders.size() >= 15);
}

TEST_CASE("blocks start in any order that fits on the device") {
  // Block 1 gets its ticket before block 0 in some schedules, but not if only one block fits.
  bool out_of_order = false;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RunOptions options = Tickets(seed);
    options.block = {1, 1, 1};
    options.grid = {2, 1, 1};
    const RunResult free = RunBody(kTicket, options);
    out_of_order = out_of_order || free.out[0] > free.out[1];
    options.resident_blocks = 1;
    const RunResult alone = RunBody(kTicket, options);
    CHECK(alone.out[0] < alone.out[1]);
  }
  CHECK(out_of_order);
}

TEST_CASE("a block may wait for an earlier one in every schedule, on a device of any size") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const RunResult result = RunBody(R"(
      mov.u32 %r2, %ctaid.x;
      SPIN: ld.acquire.gpu.global.u32 %r3, [%rd2]; setp.ne.u32 %p1, %r3, %r2; @%p1 bra SPIN;
      add.u32 %r3, %r3, 1; st.release.gpu.global.u32 [%rd2], %r3;)",
                                     {.grid = {12, 1, 1},
                                      .block = {1, 1, 1},
                                      .in = {0},
                                      .schedule_seed = seed,
                                      .resident_blocks = 1 + seed % 4});
    INFO("seed " << seed << ": " << result.outcome.error.message);
    CHECK(result.outcome.ok);
  }
}

TEST_CASE("an increment that is not atomic loses updates in some schedule") {
  bool lost = false;
  for (uint64_t seed = 1; seed <= 50 && !lost; ++seed) {
    const RunResult result =
        RunBody(R"(
      ld.global.u64 %rd5, [%rd1]; add.u64 %rd5, %rd5, 1; st.global.u64 [%rd1], %rd5;)",
                {.grid = {4, 1, 1}, .block = {1, 1, 1}, .schedule_seed = seed});
    lost = result.out[0] != 4;
  }
  CHECK(lost);
}

TEST_CASE(
    "lanes of a warp that forget bar.warp.sync see each other's old values in some schedule") {
  bool stale = false;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const bool with_sync : {false, true}) {
      const RunResult result = RunBody(std::string(R"(
        .shared .align 8 .b32 row[32];
        mov.u32 %r2, row; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; xor.b32 %r5, %r3, 4;
        add.u32 %r5, %r5, %r2; add.u32 %r6, %r1, 100; st.shared.u32 [%r4], %r6;)") +
                                           (with_sync ? "bar.warp.sync 0xffffffff;" : "") + R"(
        ld.shared.u32 %r7, [%r5]; cvt.u64.u32 %rd5, %r7; st.global.u64 [%rd3], %rd5;)",
                                       {.schedule_seed = seed});
      REQUIRE(result.outcome.ok);
      bool right = true;
      for (uint64_t i = 0; i < 32; ++i) right = right && result.out[i] == (i ^ 1) + 100;
      if (with_sync) {
        CHECK(right);
      } else {
        stale = stale || !right;
      }
    }
  }
  CHECK(stale);
}

// A block-wide sum in shared memory, and a sum over blocks by the last one that arrives.
constexpr char kLastBlockSum[] = R"(
  .shared .align 8 .b64 sums[64];
  mov.u64 %rd10, sums; mul.wide.u32 %rd11, %r1, 8; add.u64 %rd12, %rd10, %rd11;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; cvt.u64.u32 %rd13, %r4;
  st.shared.u64 [%rd12], %rd13;
  mov.u32 %r5, 32;
  LOOP: bar.sync 0;
  setp.ge.u32 %p1, %r1, %r5; @%p1 bra NEXT;
  mul.wide.u32 %rd14, %r5, 8; add.u64 %rd14, %rd14, %rd12;
  ld.shared.u64 %rd15, [%rd14]; ld.shared.u64 %rd16, [%rd12]; add.u64 %rd16, %rd16, %rd15;
  st.shared.u64 [%rd12], %rd16;
  NEXT: shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOOP;
  setp.ne.u32 %p3, %r1, 0; @%p3 bra END;
  ld.shared.u64 %rd16, [%rd12];
  mul.wide.u32 %rd17, %r2, 8; add.u64 %rd17, %rd17, %rd2; st.global.u64 [%rd17+8], %rd16;
  FENCE
  atom.add.global.u32 %r6, [%rd2], 1;
  mov.u32 %r7, %nctaid.x; sub.u32 %r8, %r7, 1; setp.ne.u32 %p4, %r6, %r8; @%p4 bra END;
  FENCE
  mov.u64 %rd20, 0; mov.u32 %r9, 0;
  SUM: add.u64 %rd2, %rd2, 8; ld.global.u64 %rd21, [%rd2]; add.u64 %rd20, %rd20, %rd21;
  add.u32 %r9, %r9, 1; setp.lt.u32 %p5, %r9, %r7; @%p5 bra SUM;
  st.global.u64 [%rd1], %rd20;
  END:)";

std::string WithFence(std::string body, const std::string& fence) {
  for (size_t at = body.find("FENCE"); at != std::string::npos; at = body.find("FENCE"))
    body.replace(at, 5, fence);
  return body;
}

RunOptions SumOptions(uint64_t seed) {
  return {.grid = {5, 1, 1}, .block = {64, 1, 1}, .in = {0, 0, 0, 0, 0, 0}, .schedule_seed = seed};
}

TEST_CASE("a sum by the last block is right in every schedule") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const RunResult result = RunBody(WithFence(kLastBlockSum, "membar.gl;"), SumOptions(seed));
    REQUIRE(result.outcome.ok);
    CHECK(result.out[0] == 320 * 319 / 2);
  }
}

TEST_CASE("a sum by the last block without fences is wrong in some schedule") {
  bool wrong = false;
  for (uint64_t seed = 1; seed <= 150 && !wrong; ++seed)
    wrong = RunBody(WithFence(kLastBlockSum, ""), SumOptions(seed)).out[0] != 320 * 319 / 2;
  CHECK(wrong);
}

// Every thread writes its word, then the grid synchronises as cooperative groups do, then every
// thread reads a word of another block.
constexpr char kGridBarrier[] = R"(
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
  mov.u32 %r10, %nctaid.x; mul.lo.u32 %r11, %r10, %r3;
  mul.wide.u32 %rd4, %r4, 8; add.u64 %rd4, %rd4, %rd2; add.u32 %r5, %r4, 1; cvt.u64.u32 %rd5, %r5;
  st.global.u64 [%rd4+8], %rd5;
  bar.sync 0;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
  FENCE
  atom.add.global.u32 %r6, [%rd2], 1;
  SPIN: ld.volatile.global.u32 %r7, [%rd2]; setp.lt.u32 %p2, %r7, %r10; @%p2 bra SPIN;
  FENCE
  WAIT: bar.sync 0;
  add.u32 %r8, %r4, %r3; rem.u32 %r8, %r8, %r11;
  mul.wide.u32 %rd6, %r8, 8; add.u64 %rd6, %rd6, %rd2; ld.global.u64 %rd7, [%rd6+8];
  mul.wide.u32 %rd8, %r4, 8; add.u64 %rd8, %rd8, %rd1; st.global.u64 [%rd8], %rd7;)";

bool GridBarrierIsRight(const std::string& fence, uint64_t seed) {
  RunOptions options{.grid = {4, 1, 1}, .block = {64, 1, 1}, .schedule_seed = seed};
  options.in.assign(257, 0);
  options.cooperative = true;
  const RunResult result = RunBody(WithFence(kGridBarrier, fence), options);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 256; ++i) {
    if (result.out[i] != (i + 64) % 256 + 1) return false;
  }
  return true;
}

TEST_CASE("a barrier of the grid orders in every schedule, without fences it does not") {
  bool wrong = false;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    CHECK(GridBarrierIsRight("fence.acq_rel.gpu;", seed));
    wrong = wrong || !GridBarrierIsRight("", seed);
    wrong = wrong || !GridBarrierIsRight("membar.cta;", seed);
  }
  CHECK(wrong);
}

TEST_CASE("barriers of a cluster order its blocks in every schedule") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    const RunResult result = RunBody(R"(
      mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
      mul.wide.u32 %rd4, %r4, 8; add.u64 %rd5, %rd2, %rd4; cvt.u64.u32 %rd6, %r4;
      st.global.u64 [%rd5], %rd6;
      barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
      xor.b32 %r5, %r4, 32;
      mul.wide.u32 %rd7, %r5, 8; add.u64 %rd7, %rd7, %rd2; ld.global.u64 %rd8, [%rd7];
      add.u64 %rd9, %rd1, %rd4; st.global.u64 [%rd9], %rd8;)",
                                     {.grid = {4, 1, 1},
                                      .block = {32, 1, 1},
                                      .in = std::vector<uint64_t>(128, 0),
                                      .cluster = {2, 1, 1},
                                      .schedule_seed = seed});
    REQUIRE(result.outcome.ok);
    for (uint64_t i = 0; i < 128; ++i) CHECK(result.out[i] == (i ^ 32));
  }
}

TEST_CASE("clocks advance in a chosen schedule, the same way each time") {
  constexpr char kTimer[] = R"(
    mov.u64 %rd4, %globaltimer;
    AGAIN: mov.u64 %rd5, %globaltimer; sub.u64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p1, %rd6, 2000000000; @%p1 bra AGAIN;
    st.global.u64 [%rd3], %rd6;)";
  const RunResult first = RunBody(kTimer, {.schedule_seed = 5});
  const RunResult second = RunBody(kTimer, {.schedule_seed = 5});
  REQUIRE(first.outcome.ok);
  CHECK(first.out[0] >= 2000000000);
  CHECK(first.out == second.out);
}

}  // namespace
}  // namespace ops_debug::emulator
