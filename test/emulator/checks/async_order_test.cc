// What asynchronous copies, mbarriers and cluster barriers order, and what they do not.
#include <catch2/catch.hpp>

#include "test/emulator/checks/checked_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

RunOptions Threads(uint32_t threads) {
  return {.block = {threads, 1, 1}, .in = std::vector<uint64_t>(512)};
}

// %r10: shared address of this thread's 16 bytes, %r11: that of the thread 32 further on,
// %rd10: global source of this thread's 16 bytes.
const std::string kTile = R"(
  .shared .align 128 .b8 tile[4096]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;
  mov.u32 %r12, tile; shl.b32 %r13, %r1, 4; add.u32 %r10, %r12, %r13;
  xor.b32 %r14, %r13, 512; add.u32 %r11, %r12, %r14; cvt.u64.u32 %rd11, %r13; add.u64 %rd10, %rd2, %rd11;
)";

// ---- cp.async

TEST_CASE("a copy that is waited for, and a barrier: silent") {
  CHECK(Races(kTile + R"(
    cp.async.ca.shared.global [%r10], [%rd10], 16; cp.async.wait_all; bar.sync 0;
    ld.shared.u32 %r5, [%r11]; bar.sync 0; st.shared.u32 [%r10], %r5;)",
              Threads(64)) == "silent");
}

TEST_CASE("a thread reads what its own copy has not brought yet") {
  CHECK_THAT(
      Races(kTile + "cp.async.ca.shared.global [%r10], [%rd10], 16; ld.shared.u32 %r5, [%r10];",
            Threads(32)),
      Contains("store at `cp.async.ca.shared.global [%r10], [%rd10], 16;` / load at "
               "`ld.shared.u32 %r5, [%r10];`"));
}

TEST_CASE("a barrier does not wait for copies") {
  CHECK_THAT(Races(kTile + R"(cp.async.ca.shared.global [%r10], [%rd10], 16; bar.sync 0;
    ld.shared.u32 %r5, [%r11];)",
                   Threads(64)),
             Contains("store at `cp.async.ca.shared.global") && Contains("missing 9"));
}

TEST_CASE("waiting for one's own copies does not order those of others") {
  CHECK_THAT(Races(kTile + R"(cp.async.ca.shared.global [%r10], [%rd10], 16; cp.async.wait_all;
    ld.shared.u32 %r5, [%r11];)",
                   Threads(64)),
             Contains("store at `cp.async.ca.shared.global"));
}

TEST_CASE("wait_group leaves the latest groups open") {
  const std::string body = kTile + R"(
    cp.async.ca.shared.global [%r10], [%rd10], 16; cp.async.commit_group;
    cp.async.ca.shared.global [%r10+2048], [%rd10], 16; cp.async.commit_group;
    cp.async.wait_group 1; bar.sync 0; )";
  CHECK(Races(body + "ld.shared.u32 %r5, [%r11];", Threads(64)) == "silent");
  CHECK_THAT(Races(body + "ld.shared.u32 %r5, [%r11+2048];", Threads(64)),
             Contains("store at `cp.async.ca.shared.global [%r10+2048]"));
}

TEST_CASE("a buffer that is stored to while a copy into it is open (epilogue of a pipeline)") {
  const std::string body = kTile + R"(
    cp.async.ca.shared.global [%r10], [%rd10], 16; cp.async.commit_group;
    setp.ge.u32 %p1, %r1, 32; )";
  CHECK_THAT(
      Races(body + "bar.sync 0; st.shared.u32 [%r11], %r1;", Threads(64)),
      Contains("store at `cp.async.ca.shared.global") && Contains("store at `st.shared.u32"));
  CHECK(Races(body + "cp.async.wait_group 0; bar.sync 0; st.shared.u32 [%r11], %r1;",
              Threads(64)) == "silent");
}

TEST_CASE("copies that come through while the block has nothing else to do still need the wait") {
  // Warp 1 waits at the barrier, warp 0 too: the machine performs the copies there.
  const std::string body = kTile + "cp.async.ca.shared.global [%r10], [%rd10], 16; bar.sync 0; ";
  CHECK(Races(body + "cp.async.wait_all; bar.sync 0; ld.shared.u32 %r5, [%r11];", Threads(64)) ==
        "silent");
}

TEST_CASE("the source of an open copy is written") {
  CHECK_THAT(Races(kTile + R"(cp.async.ca.shared.global [%r10], [%rd10], 16;
    st.global.u32 [%rd10], 1; cp.async.wait_all;)",
                   Threads(32)),
             Contains("load at `cp.async.ca.shared.global") && Contains("store at `st.global.u32"));
}

TEST_CASE("copies handed to an mbarrier") {
  const std::string init = kTile + R"(
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared.b64 [bar], 64; READY: bar.sync 0;
    cp.async.ca.shared.global [%r10], [%rd10], 16; )";
  CHECK(Races(init + R"(cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;
    ld.shared.u32 %r5, [%r11];)",
              Threads(64)) == "silent");
  // An ordinary arrival says nothing of the copies.
  CHECK_THAT(Races(init + R"(mbarrier.arrive.shared.b64 %rd5, [bar];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;
    ld.shared.u32 %r5, [%r11];)",
                   Threads(64)),
             Contains("store at `cp.async.ca.shared.global"));
}

// ---- mbarriers

// Warp 0 writes, warp 1 reads behind `how`.
std::string Handover(const std::string& arrive, const std::string& wait) {
  return Races(kTile + R"(
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared.b64 [bar], 32;
    mbarrier.init.shared.b64 [bar2], 32; READY: bar.sync 0;
    setp.ge.u32 %p1, %r1, 32; @%p1 bra READER;
    st.shared.u32 [%r10], %r1; )" +
                   arrive + " bra DONE; READER: " + wait + " ld.shared.u32 %r5, [%r11]; DONE: ",
               Threads(64));
}

TEST_CASE("arrive with release, wait with acquire: ordered") {
  const std::string wait =
      "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;";
  CHECK(Handover("mbarrier.arrive.shared.b64 %rd5, [bar];", wait) == "silent");
  CHECK(Handover("mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];",
                 "WAIT: mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p2, [bar], 0; @!%p2 "
                 "bra WAIT;") == "silent");
}

TEST_CASE("relaxed on either side: not ordered; with fences it is") {
  const std::string arrive = "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];";
  const std::string wait =
      "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;";
  CHECK_THAT(Handover(arrive, wait), Contains("store at `st.shared.u32 [%r10], %r1;`"));
  CHECK(Handover("fence.acq_rel.cta; " + arrive, wait) == "silent");
  CHECK_THAT(Handover("mbarrier.arrive.shared.b64 %rd5, [bar];",
                      "WAIT: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p2, [bar], 0; "
                      "@!%p2 bra WAIT;"),
             Contains("store at `st.shared.u32 [%r10], %r1;`"));
}

TEST_CASE("waiting on another mbarrier, or for the phase before") {
  CHECK_THAT(Handover("mbarrier.arrive.shared.b64 %rd5, [bar2];",
                      "mbarrier.arrive.shared.b64 %rd6, [bar]; WAIT: "
                      "mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;"),
             Contains("store at `st.shared.u32 [%r10], %r1;`"));
  CHECK_THAT(Handover("mbarrier.arrive.shared.b64 %rd5, [bar];",
                      "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 1; @!%p2 bra WAIT;"),
             Contains("store at `st.shared.u32 [%r10], %r1;`"));
}

TEST_CASE("what a later phase gathers is not part of the earlier one") {
  // Warp 0 arrives, writes again and arrives again; warp 1 waits for the first phase only.
  CHECK_THAT(Handover("mbarrier.arrive.shared.b64 %rd5, [bar]; st.shared.u32 [%r10], 7; "
                      "mbarrier.arrive.shared.b64 %rd5, [bar2];",
                      "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;"),
             Contains("store at `st.shared.u32 [%r10], 7;`"));
}

TEST_CASE("an mbarrier that is used before everybody can know that it is initialised") {
  const std::string use = R"(mbarrier.arrive.shared.b64 %rd5, [bar];)";
  const std::string init = kTile +
                           "setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; "
                           "mbarrier.init.shared.b64 [bar], 64; READY: ";
  CHECK(Races(init + "bar.sync 0;" + use, Threads(64)) == "silent");
  CHECK_THAT(Races(init + use, Threads(64)),
             Contains("store at `mbarrier.init.shared.b64 [bar], 64;`"));
}

// ---- bulk copies and the async proxy

// Thread 0 loads 512 bytes into the tile, completing on `bar`.
const std::string kInit = kTile + R"(
  setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
  mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [bar2], 1;
  fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
  READY: bar.sync 0;
)";
const std::string kLoad = R"(
  @%p1 bra LOADED; mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd2], 512, [bar];
  LOADED:
)";
const std::string kWait =
    " WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT; ";

TEST_CASE("a bulk load that is waited for; one that is not") {
  CHECK(Races(kInit + kLoad + kWait + "ld.shared.u32 %r5, [%r10];", Threads(32)) == "silent");
  CHECK_THAT(Races(kInit + kLoad + "bar.sync 0; ld.shared.u32 %r5, [%r10];" + kWait, Threads(32)),
             Contains("store at `cp.async.bulk.shared::cluster.global") && Contains("missing 10"));
}

TEST_CASE("waiting for another copy's mbarrier") {
  CHECK_THAT(Races(kInit + kLoad + R"(
    @%p1 bra LOADED2; mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar2], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12+1024], [%rd2], 512, [bar2];
    LOADED2: W: mbarrier.try_wait.parity.shared.b64 %p2, [bar2], 0; @!%p2 bra W;
    ld.shared.u32 %r5, [%r10];)" +
                       kWait,
                   Threads(32)),
             Contains("[%r12], [%rd2], 512, [bar];`"));
}

TEST_CASE("a buffer is filled again before its readers are done; and with an empty-barrier") {
  const std::string read = kInit + kLoad + kWait + "ld.shared.u32 %r5, [%r10]; ";
  const std::string again = R"(@%p1 bra D;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd2], 512, [bar2]; D: )";
  CHECK_THAT(Races(read + again, Threads(32)), Contains("load at `ld.shared.u32 %r5, [%r10];`"));
  CHECK(Races(read + "bar.sync 0; " + again, Threads(32)) == "silent");
}

TEST_CASE("a bulk store needs the proxy fence between the stores and it") {
  const auto store = [](const std::string& between) {
    return Races(
        kTile + "setp.ne.u32 %p1, %r1, 0; st.shared.v4.u32 [%r10], {%r1, %r1, %r1, %r1}; " +
            between +
            R"( @%p1 bra D; cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r12], 512;
      cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; D: bar.sync 0;
      st.shared.u32 [%r10], 0;)",
        Threads(32));
  };
  CHECK(store("fence.proxy.async.shared::cta; bar.sync 0;") == "silent");
  CHECK(store("bar.sync 0; fence.proxy.async;") == "silent");
  CHECK_THAT(store("bar.sync 0;"),
             Contains("store at `st.shared.v4.u32") && Contains("missing 11"));
  CHECK_THAT(store("fence.proxy.async;"), Contains("store at `st.shared.v4.u32"));
}

TEST_CASE("the source of a bulk store is overwritten before the group was waited for") {
  CHECK_THAT(
      Races(kTile + R"(setp.ne.u32 %p1, %r1, 0; st.shared.v4.u32 [%r10], {%r1, %r1, %r1, %r1};
    fence.proxy.async; bar.sync 0; @%p1 bra D;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r12], 512; cp.async.bulk.commit_group;
    D: bar.sync 0; st.shared.u32 [%r10], 0; cp.async.bulk.wait_group 0;)",
            Threads(32)),
      Contains("load at `cp.async.bulk.global.shared::cta") &&
          Contains("store at `st.shared.u32 [%r10], 0;`"));
}

TEST_CASE("what a bulk store wrote is read behind wait_group and a barrier") {
  const std::string store =
      kTile + R"(setp.ne.u32 %p1, %r1, 0; st.shared.v4.u32 [%r10], {%r1, %r1, %r1, %r1};
    fence.proxy.async; bar.sync 0; @%p1 bra D;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r12], 512; cp.async.bulk.commit_group; )";
  CHECK(Races(store + "cp.async.bulk.wait_group 0; D: bar.sync 0; ld.global.u32 %r5, [%rd10];",
              Threads(32)) == "silent");
  CHECK_THAT(Races(store + "D: bar.sync 0; ld.global.u32 %r5, [%rd10];", Threads(32)),
             Contains("store at `cp.async.bulk.global.shared::cta"));
}

// ---- clusters

// The block of rank 0 writes into that of rank 1, which reads.
std::string Remote(const std::string& before, const std::string& between) {
  RunOptions options = Threads(32);
  options.grid = options.cluster = {2, 1, 1};
  return Races(kTile + before + R"(
    mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p1, %r2, 0; @%p1 bra R;
    mapa.shared::cluster.u32 %r5, %r10, 1; st.shared::cluster.u32 [%r5], %r1;
    R: )" + between +
                   " @!%p1 bra D; ld.shared.u32 %r6, [%r10]; D: barrier.cluster.arrive; "
                   "barrier.cluster.wait;",
               options);
}

TEST_CASE("distributed shared memory is ordered by the cluster's barrier, not by a block's") {
  const std::string sync = "barrier.cluster.arrive; barrier.cluster.wait;";
  CHECK(Remote(sync, sync) == "silent");
  CHECK(Remote(sync,
               "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;") ==
        "silent");
  CHECK_THAT(Remote(sync, "bar.sync 0;"), Contains("st.shared::cluster.u32 [%r5], %r1;`"));
  CHECK_THAT(Remote(sync, "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"),
             Contains("st.shared::cluster.u32 [%r5], %r1;`"));
}

TEST_CASE("the shared memory of a block that may not have started") {
  const std::string sync = "barrier.cluster.arrive; barrier.cluster.wait;";
  CHECK(Remote("", sync) == "1: store / store at `st.shared::cluster.u32 [%r5], %r1;`, missing 3");
}

// ---- matrices

// A warpgroup stores its operands, multiplies, and writes one of them again.
std::string Multiply(const std::string& before, const std::string& after) {
  RunOptions options = Threads(128);
  options.in.resize(2048);
  return Races(R"(
    .shared .align 1024 .b8 s[8192]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, %r2; mov.u32 %r4, 0;
    st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4}; st.shared.v4.u32 [%r3+4096], {%r4, %r4, %r4, %r4};
    )" + before + R"(
    cvt.u64.u32 %rd4, %r2; shr.u64 %rd4, %rd4, 4; add.s64 %rd5, %rd4, )" +
                   std::to_string(uint64_t{128 / 16} << 16 | uint64_t{256 / 16} << 32) +
                   "; add.s64 %rd6, %rd5, 256;" + R"(
    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
    setp.eq.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd5, %rd6, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;)" +
                   after,
               options);
}

TEST_CASE("operands of wgmma need a proxy fence, and the wait before they are written again") {
  const std::string fence = "fence.proxy.async; bar.sync 0;";
  const std::string again = "st.shared.u32 [%r3+4096], 1;";
  const std::string wait = "wgmma.wait_group.sync.aligned 0;";
  CHECK(Multiply(fence, wait + "bar.sync 0;" + again) == "silent");
  CHECK_THAT(Multiply("bar.sync 0;", wait),
             Contains("load at `wgmma.mma_async") && Contains("missing 11"));
  CHECK_THAT(Multiply(fence, "bar.sync 0;" + again + wait),
             Contains("load at `wgmma.mma_async") &&
                 Contains("/ store at `st.shared.u32 [%r3+4096], 1;`, missing 15"));
}

TEST_CASE("ldmatrix reads what its warp stored only behind bar.warp.sync") {
  const std::string store = kTile + "st.shared.v4.u32 [%r10], {%r1, %r1, %r1, %r1}; ";
  const std::string load =
      "xor.b32 %r15, %r10, 16; "
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2,%r3,%r4,%r5}, [%r15];";
  CHECK(Races(store + "bar.warp.sync -1; " + load, Threads(32)) == "silent");
  CHECK_THAT(Races(store + load, Threads(32)), Contains("load at `ldmatrix.sync.aligned"));
}

TEST_CASE("stmatrix writes rows") {
  const std::string store =
      kTile + "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r1,%r1,%r1,%r1}; ";
  CHECK(Races(store + "bar.sync 0; ld.shared.u32 %r5, [%r11];", Threads(64)) == "silent");
  CHECK_THAT(Races(store + "ld.shared.u32 %r5, [%r11];", Threads(64)),
             Contains("store at `stmatrix.sync.aligned"));
}

}  // namespace
}  // namespace ops_debug::emulator
