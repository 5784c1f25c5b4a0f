// Operations between lanes and between warps: shuffles, votes, barriers, and what happens when
// nobody can go on.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

TEST_CASE("shuffles in all modes") {
  const RunResult result = RunBody(R"(
    shfl.sync.bfly.b32 %r4, %r1, 5, 31, -1;
    shfl.sync.up.b32 %r5|%p1, %r1, 2, 0, -1;
    shfl.sync.down.b32 %r6|%p2, %r1, 3, 31, -1;
    shfl.sync.idx.b32 %r7, %r1, 9, 0x181f, -1;
    selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 1, 0, %p2;
    shl.b32 %r5, %r5, 8; shl.b32 %r6, %r6, 16; shl.b32 %r7, %r7, 24;
    or.b32 %r4, %r4, %r5; or.b32 %r4, %r4, %r6; or.b32 %r4, %r4, %r7;
    mad.lo.u32 %r8, %r9, 2, %r8; mov.b64 %rd10, {%r4, %r8}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) {
    const uint64_t up = i >= 2 ? i - 2 : i;
    const uint64_t down = i + 3 < 32 ? i + 3 : i;
    const uint64_t index = (i & 0x18) | 1;  // segments of eight lanes
    const uint64_t predicates = (i >= 2 ? 1 : 0) + (i + 3 < 32 ? 2 : 0);
    CHECK(result.out[i] == ((i ^ 5) | up << 8 | down << 16 | index << 24 | predicates << 32));
  }
}

TEST_CASE("tiles of a warp that execute an instruction together have results of their own") {
  const RunResult result = RunBody(R"(
    setp.ge.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff0000, 0xffff, %p1; setp.eq.u32 %p2, %r1, 3;
    vote.sync.any.pred %p3, %p2, %r2; vote.sync.ballot.b32 %r4, %p2, %r2;
    redux.sync.add.u32 %r5, %r1, %r2; selp.u32 %r6, 1, 0, %p3; mad.lo.u32 %r4, %r6, 1024, %r4;
    mov.b64 %rd10, {%r4, %r5}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i)
    CHECK(result.out[i] == (i < 16 ? (1024 + 8) | 120ull << 32 : 376ull << 32));
}

TEST_CASE("votes, matches and reductions") {
  const RunResult result = RunBody(R"(
    setp.lt.u32 %p1, %r1, 3;
    vote.sync.ballot.b32 %r4, %p1, -1; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, !%p1, -1;
    and.b32 %r5, %r1, 3; match.any.sync.b32 %r6, %r5, -1; match.all.sync.b32 %r7|%p4, %r5, -1;
    redux.sync.add.u32 %r8, %r1, -1; sub.s32 %r9, 10, %r1; redux.sync.min.s32 %r10, %r9, -1;
    elect.sync %r11|%p5, -1;
    selp.u32 %r12, 1, 0, %p2; selp.u32 %r13, 2, 0, %p3; selp.u32 %r14, 4, 0, %p4; selp.u32 %r15, 8, 0, %p5;
    add.u32 %r12, %r12, %r13; add.u32 %r12, %r12, %r14; add.u32 %r12, %r12, %r15;
    add.u32 %r8, %r8, %r10; add.u32 %r8, %r8, %r4; add.u32 %r8, %r8, %r12;
    mov.b64 %rd10, {%r8, %r6}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == ((0x11111111ull << 32) | (496 - 21 + 7 + 1 + 8)));
  CHECK(result.out[2] == ((0x44444444ull << 32) | (496 - 21 + 7 + 1)));
}

TEST_CASE("lanes on both sides of a branch meet in one shuffle") {
  const RunResult result = RunBody(R"(
    setp.lt.u32 %p1, %r1, 16;
    @%p1 bra LOW;
    shfl.sync.bfly.b32 %r4, %r1, 16, 31, -1;
    bra DONE;
    LOW: add.u32 %r5, %r1, 100;
    shfl.sync.bfly.b32 %r4, %r5, 16, 31, -1;
    DONE: cvt.u64.u32 %rd10, %r4; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[3] == 19);
  CHECK(result.out[19] == 103);
}

TEST_CASE("exited lanes do not hold up a warp operation") {
  const RunResult result = RunBody(R"(
    setp.ge.u32 %p1, %r1, 8; @%p1 exit;
    vote.sync.ballot.b32 %r4, 1, -1; cvt.u64.u32 %rd10, %r4; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 0xff);
}

TEST_CASE("a barrier orders the warps of a block") {
  const RunResult result = RunBody(R"(
    .shared .align 8 .b64 s[256];
    mov.u64 %rd4, s; mul.wide.u32 %rd5, %r1, 8; add.s64 %rd6, %rd4, %rd5; st.shared.u64 [%rd6], %rd5;
    bar.sync 0;
    sub.u32 %r4, 255, %r1; mul.wide.u32 %rd7, %r4, 8; add.s64 %rd8, %rd4, %rd7; ld.shared.u64 %rd10, [%rd8];
    st.global.u64 [%rd3], %rd10;)",
                                   {.block = {256, 1, 1}});
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 256; ++i) CHECK(result.out[i] == (255 - i) * 8);
}

TEST_CASE("half a warp at a barrier while the other half exits ends normally") {
  const RunResult result = RunBody(R"(
    setp.ge.u32 %p1, %r1, 16;
    @%p1 bra SKIP;
    bar.sync 0;
    SKIP: st.global.u64 [%rd3], 1;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 1);
  CHECK(result.out[31] == 1);
}

TEST_CASE("named barriers: producers arrive, consumers wait") {
  const RunResult result = RunBody(R"(
    .shared .align 8 .b64 s[1];
    setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUMER;
    st.shared.u64 [s], 77; bar.arrive 3, 64; bra DONE;
    CONSUMER: bar.sync 3, 64; ld.shared.u64 %rd10, [s]; st.global.u64 [%rd3], %rd10;
    DONE: )",
                                   {.block = {64, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[40] == 77);
}

TEST_CASE("barrier reductions") {
  const RunResult result = RunBody(R"(
    setp.lt.u32 %p1, %r1, 40;
    bar.red.popc.u32 %r4, 0, %p1; bar.red.and.pred %p2, 1, %p1; bar.red.or.pred %p3, 1, !%p1;
    selp.u32 %r5, 1000, 0, %p2; selp.u32 %r6, 2000, 0, %p3; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6;
    cvt.u64.u32 %rd10, %r4; st.global.u64 [%rd3], %rd10;)",
                                   {.block = {64, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[63] == 2040);
}

TEST_CASE("a partial last warp takes part in barriers") {
  const RunResult result =
      RunBody("bar.sync 0; bar.sync 1, 64; st.global.u64 [%rd3], 2;", {.block = {50, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[49] == 2);
}

TEST_CASE("a warp that spins on another warp of its block lets it run") {
  const RunResult result = RunBody(R"(
    setp.ge.u32 %p1, %r1, 32; @%p1 bra WRITER;
    SPIN: ld.volatile.global.u32 %r4, [%rd2]; setp.eq.u32 %p2, %r4, 0; @%p2 bra SPIN;
    st.global.u64 [%rd3], 9; bra DONE;
    WRITER: st.volatile.global.u32 [%rd2], 1;
    DONE: )",
                                   {.block = {64, 1, 1}, .in = {0}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 9);
}

TEST_CASE("blocks of a cooperative launch can wait for each other on one host thread") {
  const RunResult result = RunBody(R"(
    setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
    atom.global.add.u32 %r4, [%rd1], 1;
    SPIN: ld.acquire.gpu.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, 20; @%p2 bra SPIN;
    WAIT: bar.sync 0;
    atom.global.add.u64 %rd5, [%rd1+8], 1;)",
                                   {.grid = {20, 1, 1}, .out_words = 2, .cooperative = true});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 20);
  CHECK(result.out[1] == 640);
}

TEST_CASE("a failed block ends the blocks that wait for it") {
  const RunResult result = RunBody(R"(
    mov.u32 %r4, %ctaid.x; setp.eq.u32 %p1, %r4, 2; @%p1 trap;
    SPIN: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;)",
                                   {.grid = {3, 1, 1}, .in = {0}, .cooperative = true});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kTrap);
}

}  // namespace
}  // namespace ops_debug::emulator
