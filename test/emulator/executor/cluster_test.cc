// Clusters: registers, shared memory of other blocks, and copies and arrivals across blocks.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

// %r2 = block in the grid, %r3 = rank in the cluster, %rd4 = address of the thread's word.
RunResult RunCluster(const std::string& body, RunOptions options) {
  options.preamble = ".shared .align 128 .b8 memory[4096];\n";
  return RunBody(R"(
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r2, %r4, %r1; mad.wide.u32 %rd4, %r5, 8, %rd1;
  )" + body,
                 options);
}

constexpr char kSync[] = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n";

TEST_CASE("registers of a cluster") {
  const RunResult result =
      RunCluster(R"(
    mov.u32 %r10, %cluster_ctaid.x; mov.u32 %r11, %cluster_ctaid.y; mov.u32 %r12, %clusterid.x;
    mov.u32 %r13, %clusterid.y; mov.u32 %r14, %nclusterid.x; mov.u32 %r15, %cluster_nctaid.y;
    mov.u32 %r16, %cluster_nctarank; mov.pred %p1, %is_explicit_cluster; selp.u32 %r17, 1, 0, %p1;
    mov.u32 %r18, %ctaid.y; mov.u32 %r19, %nctaid.x; mad.lo.u32 %r5, %r18, %r19, %r2; mad.wide.u32 %rd4, %r5, 8, %rd1;
    mov.u32 %r20, %r10;
    mad.lo.u32 %r20, %r20, 16, %r11; mad.lo.u32 %r20, %r20, 16, %r12; mad.lo.u32 %r20, %r20, 16, %r13;
    mad.lo.u32 %r20, %r20, 16, %r14; mad.lo.u32 %r20, %r20, 16, %r15; mad.lo.u32 %r20, %r20, 16, %r16;
    mad.lo.u32 %r20, %r20, 2, %r17; mad.lo.u32 %r20, %r20, 8, %r3;
    cvt.u64.u32 %rd10, %r20; st.global.u64 [%rd4], %rd10;)",
                 {.grid = {4, 4, 1}, .block = {1, 1, 1}, .cluster = {2, 2, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t y = 0; y < 4; ++y) {
    for (uint64_t x = 0; x < 4; ++x) {
      uint64_t expected = x % 2;
      for (uint64_t digit : {y % 2, x / 2, y / 2, uint64_t{2}, uint64_t{2}, uint64_t{4}})
        expected = expected * 16 + digit;
      expected = (expected * 2 + 1) * 8 + y % 2 * 2 + x % 2;
      CHECK(result.out[y * 4 + x] == expected);
    }
  }
}

TEST_CASE("a block reads, writes and counts in the shared memory of another one") {
  const std::string body = std::string(R"(
    mov.u32 %r10, memory; mad.lo.u32 %r11, %r3, 1000, 7; st.shared.u32 [memory], %r11; mov.u32 %r12, 0; st.shared.u32 [memory+8], %r12;
  )") + kSync + R"(
    xor.b32 %r13, %r3, 1; mapa.shared::cluster.u32 %r14, %r10, %r13;
    ld.shared::cluster.u32 %r15, [%r14];
    add.u32 %r16, %r3, 5; st.shared::cluster.u32 [%r14+4], %r16;
    atom.shared::cluster.add.u32 %r17, [%r14+8], 3; red.shared::cluster.add.u32 [%r14+8], 4;
    getctarank.shared::cluster.u32 %r18, %r14;
  )" + kSync + R"(
    ld.shared.u32 %r19, [memory+4]; ld.shared.u32 %r20, [memory+8];
    mad.lo.u32 %r21, %r19, 100, %r20; mad.lo.u32 %r21, %r21, 10, %r18; mov.b64 %rd10, {%r15, %r21}; st.global.u64 [%rd4], %rd10;)";
  const RunResult result =
      RunCluster(body, {.grid = {4, 1, 1}, .block = {1, 1, 1}, .cluster = {2, 1, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == (1007 | (((1 + 5) * 100 + 7) * 10 + 1ull) << 32));
  CHECK(result.out[3] == (7 | ((5 * 100 + 7) * 10 + 0ull) << 32));
}

TEST_CASE("generic addresses of shared memory mean the same to all blocks of a cluster") {
  // Each block publishes the generic address of its own variable; the other one follows it.
  const std::string body = std::string(R"(
    mov.u64 %rd10, memory; cvta.shared.u64 %rd11, %rd10; add.u32 %r10, %r3, 20; st.u32 [%rd11+16], %r10;
    st.global.u64 [%rd4], %rd11;
  )") + kSync + R"(
    xor.b32 %r11, %r2, 1; mad.wide.u32 %rd12, %r11, 8, %rd1; ld.global.u64 %rd13, [%rd12];
    ld.u32 %r12, [%rd13+16]; mapa.u64 %rd14, %rd11, %r3; setp.eq.u64 %p1, %rd14, %rd11;
    isspacep.shared::cta %p2, %rd13; isspacep.shared::cluster %p3, %rd13; isspacep.shared %p4, %rd11;
    cvta.to.shared.u64 %rd15, %rd11; setp.eq.u64 %p5, %rd15, %rd10; isspacep.global %p6, %rd13;
    selp.u32 %r13, 1, 0, %p1; selp.u32 %r14, 2, 0, %p2; selp.u32 %r15, 4, 0, %p3; selp.u32 %r16, 8, 0, %p4;
    selp.u32 %r17, 16, 0, %p5; selp.u32 %r18, 32, 0, %p6; add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r15;
    add.u32 %r13, %r13, %r16; add.u32 %r13, %r13, %r17; add.u32 %r13, %r13, %r18;
    getctarank.u64 %r19, %rd13; mad.lo.u32 %r13, %r19, 64, %r13;
  )" + kSync + R"( mov.b64 %rd16, {%r12, %r13}; st.global.u64 [%rd4], %rd16;)";
  const RunResult result =
      RunCluster(body, {.grid = {2, 1, 1}, .block = {1, 1, 1}, .cluster = {2, 1, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == (21 | (1 + 4 + 8 + 16 + 64ull) << 32));
  CHECK(result.out[1] == (20 | (1 + 4 + 8 + 16ull) << 32));
}

TEST_CASE("arrivals at, and bytes for, the mbarrier of another block") {
  const std::string body = std::string(R"(
    mbarrier.init.shared.b64 [memory], 2; fence.mbarrier_init.release.cluster;
  )") + kSync + R"(
    xor.b32 %r10, %r3, 1; mov.u32 %r11, memory; mapa.shared::cluster.u32 %r12, %r11, %r10;
    mbarrier.arrive.expect_tx.shared.b64 _, [memory], 12;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
    add.u32 %r13, %r3, 70; mov.u32 %r14, 9; mov.u32 %r15, 1;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r12+64], {%r13, %r14}, [%r12];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12+72], %r15, [%r12];
    WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p1, [memory], 0; @!%p1 bra WAIT;
    ld.shared.u32 %r16, [memory+64]; ld.shared.u32 %r17, [memory+72]; mov.b64 %rd10, {%r16, %r17};
    st.global.u64 [%rd4], %rd10;
  )" + kSync;
  const RunResult result =
      RunCluster(body, {.grid = {2, 1, 1}, .block = {1, 1, 1}, .cluster = {2, 1, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == (71 | 1ull << 32));
  CHECK(result.out[1] == (70 | 1ull << 32));
}

TEST_CASE("a bulk copy to several blocks completes on the mbarrier of each") {
  const std::string body = std::string(R"(
    mbarrier.init.shared.b64 [memory], 1; mbarrier.arrive.expect_tx.shared.b64 _, [memory], 16;
  )") + kSync + R"(
    setp.ne.u32 %p1, %r3, 0; mov.u32 %r10, memory; mov.u16 %h1, 13;
    @!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10+128], [%rd2], 16, [%r10], %h1;
    setp.eq.u32 %p2, %r3, 1; @%p2 bra DONE;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [memory], 0; @!%p3 bra WAIT;
    DONE: ld.shared.u64 %rd10, [memory+136]; st.global.u64 [%rd4], %rd10;
  )" + kSync;
  const RunResult result = RunCluster(
      body, {.grid = {4, 1, 1}, .block = {1, 1, 1}, .in = {11, 12}, .cluster = {4, 1, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out == std::vector<uint64_t>{12, 0, 12, 12});
}

TEST_CASE("shared memory of a block that has ended cannot be reached") {
  const RunResult result =
      RunCluster(R"(
    setp.eq.u32 %p1, %r3, 1; @%p1 bra DONE;
    mov.u32 %r10, memory; mapa.shared::cluster.u32 %r11, %r10, 1;
    mov.u32 %r13, 0; SPIN: nanosleep.u32 1000; add.u32 %r13, %r13, 1; setp.lt.u32 %p2, %r13, 100; @%p2 bra SPIN;
    ld.shared::cluster.u32 %r12, [%r11];
    DONE:)",
                 {.grid = {2, 1, 1}, .block = {1, 1, 1}, .cluster = {2, 1, 1}});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK_THAT(result.outcome.error.message,
             Contains("block of cluster rank 1, which has already ended"));
}

TEST_CASE("ld.shared does not reach another block") {
  const std::string body = std::string(kSync) + R"(
    mov.u32 %r10, memory; xor.b32 %r12, %r3, 1; mapa.shared::cluster.u32 %r11, %r10, %r12;
    ld.shared.u32 %r12, [%r11];)" +
                           kSync;
  const RunResult result =
      RunCluster(body, {.grid = {2, 1, 1}, .block = {1, 1, 1}, .cluster = {2, 1, 1}});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK_THAT(result.outcome.error.message, Contains("needs .shared::cluster"));
}

}  // namespace
}  // namespace ops_debug::emulator
