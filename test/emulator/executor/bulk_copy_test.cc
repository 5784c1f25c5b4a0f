// Asynchronous copies: groups, what a forgotten wait shows, bulk copies and reductions.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

RunResult RunShared(const std::string& body, RunOptions options = {}) {
  options.preamble = ".shared .align 128 .b8 memory[4096];\n";
  return RunBody("mov.u32 %r60, memory;\n" + body, options);
}

TEST_CASE("cp.async arrives with the wait for its group, not before") {
  const RunResult result = RunShared(R"(
    shl.b32 %r2, %r1, 3; add.u32 %r2, %r2, %r60; mad.wide.u32 %rd10, %r1, 8, %rd2;
    cp.async.ca.shared.global [%r2], [%rd10], 8; cp.async.commit_group;
    cp.async.ca.shared.global [%r2+1024], [%rd10], 8; cp.async.commit_group;
    ld.shared.u64 %rd11, [%r2];
    cp.async.wait_group 1; ld.shared.u64 %rd12, [%r2]; ld.shared.u64 %rd13, [%r2+1024];
    cp.async.wait_all; ld.shared.u64 %rd14, [%r2+1024];
    mad.lo.u64 %rd15, %rd14, 10, %rd13; mad.lo.u64 %rd15, %rd15, 10, %rd12; mad.lo.u64 %rd15, %rd15, 10, %rd11;
    st.global.u64 [%rd3], %rd15;)",
                                     {.block = {2, 1, 1}, .in = {3, 4}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out == std::vector<uint64_t>{3030, 4040});
}

TEST_CASE("cp.async fills what its source does not cover") {
  const RunResult result = RunShared(R"(
    mov.u64 %rd10, -1; st.shared.u64 [memory], %rd10; st.shared.u64 [memory+8], %rd10;
    mov.u32 %r2, 5; cp.async.cg.shared.global [memory], [%rd2], 16, %r2;
    setp.eq.u32 %p1, %r2, 5; cp.async.ca.shared.global [memory+16], [%rd2], 8, %p1;
    cp.async.wait_all; ld.shared.u64 %rd11, [memory]; ld.shared.u64 %rd12, [memory+8];
    st.global.u64 [%rd1], %rd11; st.global.u64 [%rd1+8], %rd12;)",
                                     {.block = {1, 1, 1}, .in = {~0ull, ~0ull}, .out_words = 2});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out == std::vector<uint64_t>{0xff'ffff'ffff, 0});
}

TEST_CASE("cp.async.mbarrier.arrive arrives after the thread's copies") {
  const RunResult result = RunShared(R"(
    setp.ne.u32 %p1, %r1, 0;
    @!%p1 mbarrier.init.shared.b64 [memory], 32; @!%p1 mbarrier.init.shared.b64 [memory+8], 32; bar.sync 0;
    shl.b32 %r2, %r1, 3; add.u32 %r2, %r2, %r60; mad.wide.u32 %rd10, %r1, 8, %rd2;
    cp.async.ca.shared.global [%r2+256], [%rd10], 8;
    cp.async.mbarrier.arrive.noinc.shared.b64 [memory];
    cp.async.mbarrier.arrive.shared.b64 [memory+8]; mbarrier.arrive.shared.b64 %rd11, [memory+8];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [memory], 0; @!%p2 bra WAIT;
    WAIT2: mbarrier.try_wait.shared.b64 %p2, [memory+8], %rd11; @!%p2 bra WAIT2;
    xor.b32 %r3, %r1, 31; shl.b32 %r3, %r3, 3; add.u32 %r3, %r3, %r60; ld.shared.u64 %rd12, [%r3+256];
    st.global.u64 [%rd3], %rd12;)",
                                     [] {
                                       RunOptions options;
                                       for (uint64_t i = 0; i < 32; ++i)
                                         options.in.push_back(i * i);
                                       return options;
                                     }());
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) CHECK(result.out[i] == (31 - i) * (31 - i));
}

TEST_CASE("a bulk copy to shared memory completes bytes of its mbarrier") {
  const RunResult result = RunShared(R"(
    mbarrier.init.shared.b64 [memory], 1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r60+128], [%rd2], 32, [%r60];
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [memory], 32;
    ld.shared.u64 %rd11, [memory+152];
    WAIT: mbarrier.try_wait.shared.b64 %p1, [memory], %rd10; @!%p1 bra WAIT;
    ld.shared.u64 %rd12, [memory+152]; mad.lo.u64 %rd12, %rd12, 100, %rd11; st.global.u64 [%rd1], %rd12;)",
                                     {.block = {1, 1, 1}, .in = {1, 2, 3, 4}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 400);
}

TEST_CASE("a bulk store reads its source until wait_group.read, and has written after wait_group") {
  const RunResult result = RunShared(R"(
    mov.u64 %rd10, 5; st.shared.u64 [memory], %rd10; st.shared.u64 [memory+8], %rd10;
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60], 16; cp.async.bulk.commit_group;
    mov.u64 %rd11, 6; st.shared.u64 [memory], %rd11;
    cp.async.bulk.wait_group.read 0; mov.u64 %rd12, 7; st.shared.u64 [memory+8], %rd12;
    ld.global.u64 %rd13, [%rd1]; cp.async.bulk.wait_group 0; ld.global.u64 %rd14, [%rd1];
    st.global.u64 [%rd1+16], %rd13; st.global.u64 [%rd1+24], %rd14;)",
                                     {.block = {1, 1, 1}, .out_words = 4});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  // The write of 6 came too early (a mistake that shows); the one of 7 did not.
  CHECK(result.out == std::vector<uint64_t>{6, 5, 0, 6});
}

TEST_CASE("a copy that nobody waits for is done when the block ends") {
  const RunResult result = RunShared(R"(
    mov.u64 %rd10, 5; st.shared.u64 [memory], %rd10; st.shared.u64 [memory+8], %rd10;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60], 16; cp.async.bulk.commit_group;)",
                                     {.block = {1, 1, 1}, .out_words = 2});
  REQUIRE(result.outcome.ok);
  CHECK(result.out == std::vector<uint64_t>{5, 5});
}

TEST_CASE("a block that polls memory sees the copies of another one") {
  const RunResult result = RunShared(R"(
    mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 bra POLL;
    mov.u64 %rd10, 5; st.shared.u64 [memory], %rd10; st.shared.u64 [memory+8], %rd10;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60], 16; cp.async.bulk.commit_group;
    BACK: ld.relaxed.gpu.global.u64 %rd11, [%rd1+16]; setp.eq.u64 %p2, %rd11, 0; @%p2 bra BACK; bra DONE;
    POLL: ld.relaxed.gpu.global.u64 %rd11, [%rd1+8]; setp.eq.u64 %p2, %rd11, 0; @%p2 bra POLL;
    st.relaxed.gpu.global.u64 [%rd1+16], %rd11;
    DONE:)",
                                     {.grid = {2, 1, 1}, .block = {1, 1, 1}, .out_words = 3});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[2] == 5);
}

TEST_CASE("bulk reductions") {
  const RunResult result =
      RunShared(R"(
    ld.global.u64 %rd10, [%rd2]; ld.global.u64 %rd11, [%rd2+8];
    st.global.u64 [%rd1], %rd10; st.global.u64 [%rd1+8], %rd11; st.global.u64 [%rd1+16], %rd10; st.global.u64 [%rd1+24], %rd11;
    ld.global.u64 %rd12, [%rd2+16]; ld.global.u64 %rd13, [%rd2+24]; st.shared.u64 [memory], %rd12; st.shared.u64 [memory+8], %rd13;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r60], 16;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s64 [%rd1+16], [%r60], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;)",
                {.block = {1, 1, 1},
                 .in = {0x00000001'ffffffffull, 7, 0x00000002'00000002ull, ~0ull},
                 .out_words = 4});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out == std::vector<uint64_t>{0x00000003'00000001ull, 0xffffffff'00000006ull,
                                            0x00000001'ffffffffull, ~0ull});
}

TEST_CASE("bulk copies want multiples of 16 and memory that exists") {
  struct Row {
    const char* text;
    LaunchError::Code code;
    const char* reason;
  };
  const Row rows[] = {
      {"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60+8], 16;",
       LaunchError::Code::kMisalignedAddress, "the source of cp.async.bulk"},
      {"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60], 8;",
       LaunchError::Code::kMisalignedAddress, "multiple of 16"},
      {"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r60+4096], 16;",
       LaunchError::Code::kIllegalAddress, "outside the block's 4096 bytes"},
      {"mov.u64 %rd10, 4096; cp.async.bulk.global.shared::cta.bulk_group [%rd10], [%r60], 16;",
       LaunchError::Code::kIllegalAddress, "no allocation"},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r60], [%rd2], 16, "
       "[%r60+64];",
       LaunchError::Code::kLaunchFailure, "holds no mbarrier"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const RunResult result = RunShared(row.text, {.block = {1, 1, 1}, .in = {0, 0}});
    REQUIRE_FALSE(result.outcome.ok);
    CHECK(result.outcome.error.code == row.code);
    CHECK_THAT(result.outcome.error.message, Contains(row.reason));
  }
}

}  // namespace
}  // namespace ops_debug::emulator
