// Branches, divergence and calls: lanes go their own ways, meet again and always make progress.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

TEST_CASE("lanes that branch apart compute their own results") {
  const RunResult result = RunBody(R"(
    setp.lt.u32 %p1, %r1, 10;
    @%p1 bra SMALL;
    mov.b64 %rd10, 100;
    bra DONE;
    SMALL: mov.b64 %rd10, 1;
    DONE: st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint32_t i = 0; i < 32; ++i) CHECK(result.out[i] == (i < 10 ? 1 : 100));
}

TEST_CASE("lanes leave a loop at different times and meet behind it") {
  const RunResult result = RunBody(R"(
    mov.b32 %r5, 0;
    LOOP: setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra OUT;
    add.u32 %r5, %r5, 1;
    bra LOOP;
    OUT: activemask.b32 %r6;
    mul.wide.u32 %rd10, %r5, 1;
    mov.b64 %rd11, {%r5, %r6};
    st.global.u64 [%rd3], %rd11;)");
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) CHECK(result.out[i] == (0xffffffffull << 32 | i));
}

TEST_CASE("code that is laid out backwards still reconverges") {
  const RunResult result = RunBody(R"(
    and.b32 %r4, %r1, 1;
    setp.eq.u32 %p1, %r4, 0;
    bra START;
    JOIN: activemask.b32 %r6;
    cvt.u64.u32 %rd10, %r6;
    st.global.u64 [%rd3], %rd10;
    ret;
    ODD: mov.b32 %r5, 1;
    bra JOIN;
    START: @!%p1 bra ODD;
    mov.b32 %r5, 2;
    bra JOIN;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 0xffffffff);
  CHECK(result.out[31] == 0xffffffff);
}

TEST_CASE("a predicated instruction changes the lanes of its guard only") {
  const RunResult result = RunBody(R"(
    mov.b64 %rd10, 7;
    setp.eq.u32 %p1, %r1, 3;
    @%p1 mov.b64 %rd10, 8;
    @!%p1 add.u64 %rd10, %rd10, 2;
    st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[3] == 8);
  CHECK(result.out[4] == 9);
}

TEST_CASE("a lane that spins on another lane of its warp lets it run") {
  // Lane 0 spins until lane 31, which its branch order holds back, writes the flag.
  const RunResult result = RunBody(R"(
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra OTHERS;
    SPIN: ld.volatile.global.u32 %r5, [%rd2];
    setp.eq.u32 %p2, %r5, 0;
    @%p2 bra SPIN;
    bra DONE;
    OTHERS: setp.eq.u32 %p3, %r1, 31;
    @%p3 st.volatile.global.u32 [%rd2], 1;
    DONE: st.global.u64 [%rd3], 5;)",
                                   {.in = {0}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 5);
}

TEST_CASE("every lane of a warp gets a spin lock in turn") {
  const RunResult result = RunBody(R"(
    ACQUIRE: atom.global.cas.b32 %r5, [%rd2], 0, 1;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra ACQUIRE;
    ld.volatile.global.u64 %rd10, [%rd2+8];
    add.u64 %rd10, %rd10, 1;
    st.volatile.global.u64 [%rd2+8], %rd10;
    membar.gl;
    atom.global.exch.b32 %r6, [%rd2], 0;
    st.global.u64 [%rd3], %rd10;)",
                                   {.in = {0, 0}});
  REQUIRE(result.outcome.ok);
  uint64_t sum = 0;
  for (uint64_t value : result.out) sum += value;
  CHECK(sum == 32 * 33 / 2);
}

TEST_CASE("brx.idx branches through its table") {
  const RunResult result = RunBody(R"(
    and.b32 %r4, %r1, 3;
    ts: .branchtargets L0, L1, L2, L0;
    brx.idx %r4, ts;
    L0: mov.b64 %rd10, 10; bra END;
    L1: mov.b64 %rd10, 11; bra END;
    L2: mov.b64 %rd10, 12;
    END: st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 10);
  CHECK(result.out[1] == 11);
  CHECK(result.out[2] == 12);
  CHECK(result.out[3] == 10);
}

TEST_CASE("labels and registers of nested blocks are their own") {
  const RunResult result = RunBody(R"(
    mov.b32 %r5, 0;
    { .reg .pred p; .reg .b32 n; mov.b32 n, 3; AGAIN: add.u32 %r5, %r5, 1; sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra AGAIN; }
    { .reg .pred p; .reg .b32 n; mov.b32 n, 4; AGAIN: add.u32 %r5, %r5, 10; sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra AGAIN; }
    cvt.u64.u32 %rd10, %r5;
    st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[7] == 43);
}

const char kFunctions[] = R"(
.func (.param .b32 result) twice(.param .b32 x)
{ .reg .b32 %r<4>; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret; }
.func (.param .b32 result) thrice(.param .b32 x)
{ .reg .b32 %r<4>; ld.param.u32 %r1, [x]; mul.lo.u32 %r2, %r1, 3; st.param.b32 [result], %r2; ret; }
.func (.param .b32 result) factorial(.param .b32 x)
{
  .reg .b32 %r<8>; .reg .pred %p<2>;
  ld.param.u32 %r1, [x];
  setp.gt.u32 %p1, %r1, 1;
  @%p1 bra MORE;
  st.param.b32 [result], 1;
  ret;
  MORE: sub.u32 %r2, %r1, 1;
  { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call.uni (r), factorial, (a); ld.param.b32 %r3, [r]; }
  mul.lo.u32 %r4, %r3, %r1;
  st.param.b32 [result], %r4;
  ret;
}
.global .align 8 .u64 table[2] = {twice, thrice};
)";

TEST_CASE("calls pass parameters and results, also recursively and to some lanes") {
  const RunResult result = RunBody(R"(
    and.b32 %r4, %r1, 7;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r4; call.uni (r), factorial, (a); ld.param.b32 %r5, [r]; }
    setp.ge.u32 %p1, %r1, 16;
    @%p1 bra SKIP;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r5; call (r), twice, (a); ld.param.b32 %r5, [r]; }
    SKIP: activemask.b32 %r6;
    mov.b64 %rd10, {%r5, %r6};
    st.global.u64 [%rd3], %rd10;)",
                                   {.preamble = kFunctions});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[5] == ((0xffffffffull << 32) | 240));
  CHECK(result.out[23] == ((0xffffffffull << 32) | 5040));
}

TEST_CASE("indirect calls go through function addresses, each lane to its own") {
  const RunResult result = RunBody(R"(
    and.b32 %r4, %r1, 1;
    mul.wide.u32 %rd5, %r4, 8;
    mov.u64 %rd6, table;
    add.s64 %rd7, %rd6, %rd5;
    ld.global.u64 %rd8, [%rd7];
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;
      prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (r), %rd8, (a), prototype; ld.param.b32 %r5, [r]; }
    cvt.u64.u32 %rd10, %r5;
    st.global.u64 [%rd3], %rd10;)",
                                   {.preamble = kFunctions});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[10] == 20);
  CHECK(result.out[11] == 33);
}

TEST_CASE("a call through an address that holds no function fails the launch") {
  const RunResult result = RunBody(R"(
    mov.b64 %rd8, 64;
    prototype: .callprototype _ ();
    call %rd8, (), prototype;)");
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kInvalidProgramCounter);
}

TEST_CASE("endless recursion is a stack overflow, not a crash") {
  const RunResult result =
      RunBody("call.uni deeper, ();", {.preamble = ".func deeper() { call.uni deeper, (); ret; }"});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK_THAT(result.outcome.error.message, Catch::Contains("stack overflow"));
}

TEST_CASE("an unsupported instruction fails when it is executed, by name and line") {
  const std::string never = R"(
    setp.eq.u32 %p1, %r1, 1000;
    @%p1 vadd.u32.u32.u32 %r2, %r1, %r1;
    st.global.u64 [%rd3], 1;)";
  CHECK(RunBody(never).outcome.ok);
  const RunResult result = RunBody("vadd.u32.u32.u32 %r2, %r1, %r1;");
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kUnsupportedInstruction);
  CHECK_THAT(result.outcome.error.message,
             Catch::Contains("`vadd.u32.u32.u32 %r2, %r1, %r1;` (PTX line 12)"));
}

TEST_CASE("trap ends the launch") {
  const RunResult result = RunBody("setp.eq.u32 %p1, %r1, 9; @%p1 trap;");
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kTrap);
  CHECK_THAT(result.outcome.error.message, Catch::Contains("thread (9,0,0)"));
}

TEST_CASE("executed instructions are counted per thread") {
  const RunResult one = RunBody("add.u32 %r5, %r1, 1;");
  const RunResult two = RunBody("add.u32 %r5, %r1, 1; add.sat.f32 %f1, %f2, %f3;");
  CHECK(one.outcome.thread_instructions == 32 * 6);
  CHECK(two.outcome.thread_instructions == 32 * 7);
}

TEST_CASE("special registers describe the thread") {
  const RunResult result =
      RunBody(R"(
    mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.x; mov.u32 %r6, %ctaid.z; mov.u32 %r7, %laneid; mov.u32 %r8, %nctaid.z;
    mov.u32 %r9, %lanemask_lt; mov.u32 %r10, %dynamic_smem_size; mov.u32 %r11, %warpid;
    mov.u32 %r12, %tid.z;
    mad.lo.u32 %r20, %r12, 4, %r4; mad.lo.u32 %r20, %r20, %r5, %r1;
    mad.lo.u32 %r20, %r6, 64, %r20;
    mul.wide.u32 %rd5, %r20, 8; add.s64 %rd3, %rd1, %rd5;
    shl.b32 %r4, %r4, 8; shl.b32 %r6, %r6, 16; or.b32 %r4, %r4, %r6; or.b32 %r4, %r4, %r7;
    add.u32 %r9, %r9, %r10;
    mov.b64 %rd10, {%r4, %r9};
    st.global.u64 [%rd3], %rd10;)",
              {.grid = {1, 1, 2}, .block = {8, 4, 2}, .dynamic_shared_bytes = 64});
  REQUIRE(result.outcome.ok);
  // Thread (3, 2, 1) of block 1: lane (1 * 4 + 2) * 8 + 3 = 51 -> 19.
  CHECK(result.out[64 + 51] == ((((1ull << 19) - 1 + 64) << 32) | (1 << 16) | (2 << 8) | 19));
}

}  // namespace
}  // namespace ops_debug::emulator
