// mbarrier objects: phases, counts, transaction bytes, waiting, and what happens when they are used
// wrongly.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

constexpr char kShared[] = ".shared .align 128 .b8 memory[4096];\n";

RunResult RunShared(const std::string& body, RunOptions options = {}) {
  options.preamble = kShared;
  return RunBody("mov.u32 %r60, memory; mov.u32 %r61, 0;\n" + body, options);
}

RunOptions Threads(uint32_t count) {
  RunOptions options;
  options.block.x = count;
  return options;
}

// Only thread 0 executes it.
std::string Once(const std::string& text) {
  return "setp.ne.u32 %p60, %r1, 0; @%p60 bra SKIP_ONCE;\n" + text + "\nSKIP_ONCE: bar.sync 0;\n";
}

TEST_CASE("a phase ends with the last expected arrival") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 3;
    mbarrier.arrive.shared.b64 %rd10, [memory];
    mbarrier.test_wait.shared.b64 %p1, [memory], %rd10;
    mbarrier.arrive.shared.b64 %rd11, [memory], 2;
    mbarrier.test_wait.shared.b64 %p2, [memory], %rd10;
    mbarrier.test_wait.shared.b64 %p3, [memory], %rd11;
    mbarrier.pending_count.b64 %r4, %rd10;
    mbarrier.pending_count.b64 %r5, %rd11;
    selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2; selp.u32 %r8, 4, 0, %p3;
    or.b32 %r6, %r6, %r7; or.b32 %r6, %r6, %r8;
    st.global.u32 [%rd1], %r6; st.global.u32 [%rd1+4], %r4; st.global.u32 [%rd1+8], %r5;)",
                                     {.block = {1, 1, 1}, .out_words = 2});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == (6 | 3ull << 32));  // pending before the first arrival: 3
  CHECK(result.out[1] == 2);                 // and before the second: 2
}

TEST_CASE("parity of the phase that is over, and of the one that is not") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared::cta.b64 [memory+8], 1;
    mbarrier.test_wait.parity.shared.b64 %p1, [memory+8], 1;
    mbarrier.test_wait.parity.shared.b64 %p2, [memory+8], 0;
    mbarrier.arrive.shared.b64 _, [memory+8];
    mbarrier.try_wait.parity.shared.b64 %p3, [memory+8], 0;
    mbarrier.test_wait.parity.shared.b64 %p4, [memory+8], 1;
    selp.u32 %r4, 1, 0, %p1; selp.u32 %r5, 2, 0, %p2; selp.u32 %r6, 4, 0, %p3; selp.u32 %r7, 8, 0, %p4;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; st.global.u32 [%rd1], %r4;)",
                                     {.block = {1, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 1 + 4);
}

TEST_CASE("transaction bytes keep a phase open") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 1;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [memory], 64;
    mbarrier.complete_tx.shared.b64 [memory], 48;
    mbarrier.test_wait.shared.b64 %p1, [memory], %rd10;
    mbarrier.expect_tx.relaxed.cta.shared.b64 [memory], 16;
    mbarrier.complete_tx.shared.b64 [memory], 16;
    mbarrier.test_wait.shared.b64 %p2, [memory], %rd10;
    mbarrier.complete_tx.shared.b64 [memory], 16;
    mbarrier.test_wait.shared.b64 %p3, [memory], %rd10;
    selp.u32 %r4, 1, 0, %p1; selp.u32 %r5, 2, 0, %p2; selp.u32 %r6, 4, 0, %p3;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd1], %r4;)",
                                     {.block = {1, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 4);
}

TEST_CASE("bytes may complete before they are expected") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 1;
    mbarrier.complete_tx.shared.b64 [memory], 32;
    mbarrier.test_wait.parity.shared.b64 %p1, [memory], 0;
    mbarrier.arrive.expect_tx.shared.b64 _, [memory], 32;
    mbarrier.test_wait.parity.shared.b64 %p2, [memory], 0;
    selp.u32 %r4, 1, 0, %p1; selp.u32 %r5, 2, 0, %p2; add.u32 %r4, %r4, %r5; st.global.u32 [%rd1], %r4;)",
                                     {.block = {1, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 2);
}

TEST_CASE("a dropped arrival is missed in later phases") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 2;
    mbarrier.arrive.shared.b64 _, [memory];
    mbarrier.arrive_drop.shared.b64 _, [memory];
    mbarrier.arrive.shared.b64 %rd10, [memory];
    mbarrier.test_wait.shared.b64 %p1, [memory], %rd10;
    mbarrier.pending_count.b64 %r4, %rd10;
    selp.u32 %r5, 16, 0, %p1; add.u32 %r4, %r4, %r5; st.global.u32 [%rd1], %r4;)",
                                     {.block = {1, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 17);
}

TEST_CASE("the bytes of an mbarrier serve again after inval, and it can be made anew") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 5;
    mbarrier.inval.shared.b64 [memory];
    mov.u64 %rd10, 42; st.shared.u64 [memory], %rd10; ld.shared.u64 %rd11, [memory];
    mbarrier.init.shared.b64 [memory], 1;
    mbarrier.arrive.shared.b64 %rd12, [memory];
    mbarrier.test_wait.shared.b64 %p1, [memory], %rd12;
    selp.u64 %rd13, 100, 0, %p1; add.u64 %rd11, %rd11, %rd13; st.global.u64 [%rd1], %rd11;)",
                                     {.block = {1, 1, 1}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 142);
}

TEST_CASE("warps hand data on through full and empty mbarriers") {
  // Warp 0 writes, warp 1 sums up, eight rounds through one buffer.
  const RunResult result = RunShared(Once("mbarrier.init.shared.b64 [memory], 32;"
                                          "mbarrier.init.shared.b64 [memory+8], 32;") +
                                         R"(
    and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; add.u32 %r3, %r3, %r60;
    mov.u32 %r10, 0; mov.u32 %r11, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUME;
    PRODUCE: and.b32 %r12, %r10, 1; xor.b32 %r12, %r12, 1;
    EMPTY: mbarrier.try_wait.parity.shared.b64 %p2, [memory+8], %r12; @!%p2 bra EMPTY;
    mad.lo.u32 %r13, %r10, 100, %r2; st.shared.u32 [%r3+64], %r13;
    mbarrier.arrive.shared.b64 _, [memory];
    add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 8; @%p3 bra PRODUCE; bra DONE;
    CONSUME: and.b32 %r12, %r10, 1;
    FULL: mbarrier.try_wait.parity.shared.b64 %p2, [memory], %r12, 1000; @!%p2 bra FULL;
    ld.shared.u32 %r13, [%r3+64]; add.u32 %r11, %r11, %r13;
    mbarrier.arrive.shared.b64 _, [memory+8];
    add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 8; @%p3 bra CONSUME;
    cvt.u64.u32 %rd10, %r11; st.global.u64 [%rd3], %rd10;
    DONE:)",
                                     Threads(64));
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) CHECK(result.out[32 + i] == 2800 + 8 * i);
}

TEST_CASE("a thread that polls with test_wait lets the others arrive") {
  const RunResult result = RunShared(Once("mbarrier.init.shared.b64 [memory], 64;") + R"(
    mbarrier.arrive.shared.b64 %rd10, [memory];
    POLL: mbarrier.test_wait.shared.b64 %p1, [memory], %rd10; @!%p1 bra POLL;
    mov.u64 %rd11, 1; st.global.u64 [%rd3], %rd11;)",
                                     Threads(64));
  REQUIRE(result.outcome.ok);
  CHECK(result.out[63] == 1);
}

TEST_CASE("uses of mbarriers that PTX does not define are errors with a reason") {
  struct Row {
    const char* text;
    const char* reason;
  };
  const Row rows[] = {
      {"mbarrier.arrive.shared.b64 _, [memory];", "mbarrier.init has not run"},
      {"mbarrier.init.shared.b64 [memory], 1; mbarrier.inval.shared.b64 [memory]; "
       "mbarrier.test_wait.parity.shared.b64 %p1, [memory], 0;",
       "holds no mbarrier"},
      {"mbarrier.init.shared.b64 [memory], 0;", "count of 0"},
      {"mbarrier.init.shared.b64 [memory], 2; mbarrier.arrive.shared.b64 _, [memory], 3;",
       "expects 2 more arrival(s) in this phase, but 3 came"},
      {"mbarrier.init.shared.b64 [memory], 1; mbarrier.expect_tx.relaxed.cta.shared.b64 [memory], "
       "1048575; "
       "mbarrier.expect_tx.relaxed.cta.shared.b64 [memory], 1;",
       "transaction count would become 1048576"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const RunResult result = RunShared(row.text, Threads(1));
    REQUIRE_FALSE(result.outcome.ok);
    CHECK(result.outcome.error.code == LaunchError::Code::kLaunchFailure);
    CHECK_THAT(result.outcome.error.message, Contains(row.reason));
  }
}

TEST_CASE("an mbarrier at an odd address is misaligned") {
  const RunResult result = RunShared("mbarrier.init.shared.b64 [memory+4], 1;", Threads(1));
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kMisalignedAddress);
}

TEST_CASE("waiting for an arrival that never comes is a deadlock that names the mbarrier") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory+16], 2;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [memory+16], 4096;
    WAIT: mbarrier.try_wait.shared.b64 %p1, [memory+16], %rd10; @!%p1 bra WAIT;)",
                                     Threads(1));
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kDeadlock);
  CHECK_THAT(result.outcome.error.message, Contains("mbarrier at shared address 0x10"));
  CHECK_THAT(result.outcome.error.message, Contains("1 arrival(s) and 4096 bytes"));
}

}  // namespace
}  // namespace ops_debug::emulator
