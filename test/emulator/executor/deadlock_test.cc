// Deadlocks are found and explained; slow programs are none.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;

// Under the default schedule and under some others.
constexpr uint64_t kSeeds[] = {0, 1, 2, 3};

std::string DeadlockOf(const std::string& body, RunOptions options) {
  std::string message;
  for (const uint64_t seed : kSeeds) {
    options.schedule_seed = seed;
    const RunResult result = RunBody(body, options);
    REQUIRE_FALSE(result.outcome.ok);
    CHECK(result.outcome.error.code == LaunchError::Code::kDeadlock);
    if (seed == 0) message = result.outcome.error.message;
  }
  return message;
}

TEST_CASE("threads at different barriers: who waits where, and who is missing") {
  const std::string message = DeadlockOf(R"(
    setp.ge.u32 %p1, %r1, 32; @%p1 bra OTHER;
    bar.sync 1; bra DONE;
    OTHER: bar.sync 2;
    DONE: )",
                                         {.block = {64, 1, 1}});
  CHECK_THAT(message, Contains("32 threads wait at `bar.sync 1;` (PTX line 14) (first: block "
                               "(0,0,0), thread (0,0,0)) for barrier 1 of their block, at which 32 "
                               "of 64 threads have arrived"));
  CHECK_THAT(message, Contains("32 threads wait at `bar.sync 2;` (PTX line 15) (first: block "
                               "(0,0,0), thread (32,0,0))"));
}

TEST_CASE("a barrier that expects more threads than come") {
  const std::string message = DeadlockOf(R"(
    setp.ge.u32 %p1, %r1, 32; @%p1 bra DONE;
    barrier.sync 3, 64;
    DONE: )",
                                         {.block = {64, 1, 1}});
  CHECK_THAT(message, Contains("for barrier 3 of their block, at which 32 of 64 expected threads "
                               "have arrived (the block has 64); 32 have exited"));
}

TEST_CASE("lanes that are missing at a warp's barrier") {
  const std::string message = DeadlockOf(R"(
    setp.ge.u32 %p1, %r1, 16; @%p1 bra HIGH;
    bar.warp.sync 0xffffffff; bra DONE;
    HIGH: bar.sync 0;
    DONE: )",
                                         {});
  CHECK_THAT(message, Contains("16 threads wait at `bar.warp.sync 0xffffffff;`"));
  CHECK_THAT(message, Contains("for lanes 0xffff0000 of their warp, which are elsewhere"));
}

TEST_CASE("a spin on a flag that nobody sets names the variable and its value") {
  const std::string message = DeadlockOf(
      "SPIN: ld.volatile.global.u32 %r5, [flag+4]; setp.ne.u32 %p1, %r5, 7; @%p1 bra SPIN;",
      {.block = {1, 1, 1}, .preamble = ".global .align 4 .u32 flag[2] = {0, 3};\n"});
  CHECK_THAT(message,
             Contains("1 thread spins at `ld.volatile.global.u32 %r5, [flag+4];` (PTX line"));
  CHECK_THAT(message, Contains("(variable flag + 4), which holds 3"));
}

TEST_CASE("counters that change beside a spin do not hide it") {
  // As a checking tool counts; in a function of its own, with an atomic whose result nobody uses.
  const std::string message = DeadlockOf(
      R"(
    SPIN: { .param .b64 p; st.param.b64 [p], %rd2; call count, (p); }
    ld.volatile.global.u32 %r5, [flag]; setp.eq.u32 %p1, %r5, 0; @%p1 bra SPIN;)",
      {.grid = {2, 1, 1}, .in = {0}, .preamble = R"(.global .align 4 .u32 flag;
.func count(.param .b64 p) { .reg .b64 %a<4>; .reg .b32 %i; .reg .pred %q;
ld.param.b64 %a1, [p]; mov.u32 %i, 0;
L: atom.global.add.u64 %a2, [%a1], 1; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 3; @%q bra L; ret; }
)"});
  CHECK_THAT(message,
             Contains("64 threads of 2 blocks spin at `ld.volatile.global.u32 %r5, [flag];`"));
}

TEST_CASE("a lock that is never released") {
  const std::string message = DeadlockOf(R"(
    LOCK: atom.cas.acquire.gpu.global.b32 %r5, [%rd2], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra LOCK;)",
                                         {.grid = {3, 1, 1}, .block = {1, 1, 1}, .in = {0}});
  CHECK_THAT(message, Contains("2 threads of 2 blocks spin at `atom.cas.acquire.gpu.global.b32"));
  CHECK_THAT(message, Contains("of 3 blocks 2 wait or spin, 1 has ended"));
}

TEST_CASE("a spin on a block that cannot start says so") {
  const std::string message =
      DeadlockOf(R"(
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; sub.u32 %r3, %r3, 1; setp.eq.u32 %p1, %r2, %r3;
    @%p1 bra LAST;
    SPIN: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
    bra DONE;
    LAST: st.volatile.global.u32 [%rd2], 1;
    DONE: )",
                 {.grid = {9, 1, 1}, .block = {1, 1, 1}, .in = {0}, .resident_blocks = 8});
  CHECK_THAT(message, Contains("8 threads of 8 blocks spin at"));
  CHECK_THAT(message, Contains("1 cannot start: the device holds 8 of this kernel at a time"));
}

TEST_CASE("a spin on a later block that fits on the device is no deadlock") {
  for (const uint64_t seed : kSeeds) {
    const RunResult result = RunBody(R"(
      mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; sub.u32 %r3, %r3, 1; setp.eq.u32 %p1, %r2, %r3;
      @%p1 bra LAST;
      SPIN: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
      bra DONE;
      LAST: st.volatile.global.u32 [%rd2], 1;
      DONE: )",
                                     {.grid = {90, 1, 1},
                                      .block = {1, 1, 1},
                                      .workers = 2,
                                      .in = {0},
                                      .schedule_seed = seed,
                                      .resident_blocks = 90});
    INFO(result.outcome.error.message);
    CHECK(result.outcome.ok);
  }
}

TEST_CASE("a grid barrier that one block skips") {
  RunOptions options{.grid = {4, 1, 1}, .block = {32, 1, 1}, .in = {0}};
  options.cooperative = true;
  const std::string message = DeadlockOf(R"(
    mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 2; @%p1 bra DONE;
    setp.ne.u32 %p2, %r1, 0; @%p2 bra WAIT;
    membar.gl; atom.add.global.u32 %r5, [%rd2], 1;
    SPIN: ld.volatile.global.u32 %r6, [%rd2]; setp.lt.u32 %p3, %r6, 4; @%p3 bra SPIN;
    WAIT: bar.sync 0;
    DONE: )",
                                         options);
  CHECK_THAT(message,
             Contains("3 threads of 3 blocks spin at `ld.volatile.global.u32 %r6, [%rd2];`"));
  CHECK_THAT(message, Contains("which holds 3"));
  CHECK_THAT(message, Contains("93 threads of 3 blocks wait at `bar.sync 0;`"));
  CHECK_THAT(message, Contains("of 4 blocks 3 wait or spin, 1 has ended"));
}

TEST_CASE("a block of a cluster that does not come to the cluster's barrier") {
  const std::string message =
      DeadlockOf(R"(
    mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 bra OTHER;
    barrier.cluster.arrive; barrier.cluster.wait; bra DONE;
    OTHER: SPIN: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
    DONE: )",
                 {.grid = {2, 1, 1}, .block = {32, 1, 1}, .in = {0}, .cluster = {2, 1, 1}});
  CHECK_THAT(message,
             Contains("for the barrier of the cluster, at which 32 of 64 threads have arrived"));
}

TEST_CASE("a long computation is no deadlock") {
  const RunResult result = RunBody(R"(
    mov.u32 %r5, 0;
    AGAIN: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 30000000; @%p1 bra AGAIN;
    cvt.u64.u32 %rd5, %r5; st.global.u64 [%rd3], %rd5;)",
                                   {});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 30000000);
}

TEST_CASE("a long computation that polls a flag is no deadlock") {
  const RunResult result = RunBody(R"(
    mov.u32 %r5, 0;
    AGAIN: ld.volatile.global.u32 %r6, [%rd2]; setp.ne.u32 %p2, %r6, 0; @%p2 bra DONE;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 8000000; @%p1 bra AGAIN;
    DONE: cvt.u64.u32 %rd5, %r5; st.global.u64 [%rd3], %rd5;)",
                                   {.block = {1, 1, 1}, .in = {0}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 8000000);
}

TEST_CASE("blocks may wait for one that computes for long") {
  const RunResult result =
      RunBody(R"(
    mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 3; @%p1 bra SPIN;
    mov.u32 %r5, 0;
    AGAIN: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 20000000; @%p1 bra AGAIN;
    st.volatile.global.u32 [%rd2], 1;
    SPIN: ld.volatile.global.u32 %r6, [%rd2]; setp.eq.u32 %p2, %r6, 0; @%p2 bra SPIN;)",
              {.grid = {4, 1, 1}, .block = {1, 1, 1}, .workers = 2, .in = {0}});
  INFO(result.outcome.error.message);
  CHECK(result.outcome.ok);
}

TEST_CASE("a flag that the host sets after a while is waited for") {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{3}}) {
    DeviceMemory memory;
    auto loaded = Program::Load(R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 flag)
{
.reg .pred %p1; .reg .b32 %r1; .reg .b64 %rd1;
ld.param.u64 %rd1, [flag];
SPIN: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
st.volatile.global.u32 [%rd1], 2;
ret;
})",
                                memory);
    REQUIRE(loaded.ok());
    const uint64_t flag = memory.Allocate(4);
    auto* const word = reinterpret_cast<volatile uint32_t*>(flag);
    *word = 0;
    LaunchConfig config;
    config.parameters = std::as_bytes(std::span(&flag, 1));
    config.schedule_seed = seed;
    config.host_accessible = [flag](uint64_t address) { return address == flag; };
    std::thread host([word] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2000));
      *word = 1;
    });
    const Program& program = **loaded;
    const LaunchOutcome outcome =
        Run(program, *program.FindKernel("kernel"), config, DeviceModel{}, memory, 1);
    host.join();
    INFO(outcome.error.message);
    CHECK(outcome.ok);
    CHECK(*word == 2);
  }
}

// In a replay nobody else runs: no patience, but the host's memory proves nothing.
TEST_CASE("a launch that is alone and spins is told apart by whose memory it is") {
  DeviceMemory memory;
  auto loaded = Program::Load(R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 flag)
{
.reg .pred %p1; .reg .b32 %r1; .reg .b64 %rd1;
ld.param.u64 %rd1, [flag];
SPIN: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
ret;
})",
                              memory);
  REQUIRE(loaded.ok());
  const uint64_t flag = memory.Allocate(4);
  LaunchConfig config;
  config.parameters = std::as_bytes(std::span(&flag, 1));
  config.is_alone = true;
  const Program& program = **loaded;
  for (const bool by_host : {false, true}) {
    config.host_accessible = [by_host](uint64_t) { return by_host; };
    const auto begin = std::chrono::steady_clock::now();
    const LaunchOutcome outcome =
        Run(program, *program.FindKernel("kernel"), config, DeviceModel{}, memory, 1);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2500));
    REQUIRE_FALSE(outcome.ok);
    CHECK(outcome.error.spins_globally);
    CHECK((outcome.error.code == LaunchError::Code::kHostWait) == by_host);
    CHECK((outcome.error.code == LaunchError::Code::kDeadlock) == !by_host);
    CHECK_THAT(outcome.error.message,
               by_host ? Catch::Contains("waits for memory that the host can write")
                       : Catch::Contains("no thread can go on"));
  }
}

TEST_CASE("a loop with a time limit ends by itself") {
  const RunResult result = RunBody(R"(
    mov.u64 %rd4, %globaltimer;
    AGAIN: ld.volatile.global.u32 %r5, [%rd2]; setp.ne.u32 %p2, %r5, 0; @%p2 bra DONE;
    mov.u64 %rd5, %globaltimer; sub.u64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p1, %rd6, 700000000; @%p1 bra AGAIN;
    DONE: st.global.u64 [%rd3], 9;)",
                                   {.block = {1, 1, 1}, .in = {0}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 9);
}

}  // namespace
}  // namespace ops_debug::emulator
