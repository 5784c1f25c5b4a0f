// Lanes, warps and blocks that wait for each other get on; launches end at their instruction limit.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

// Warp 0 waits for warp 1 in a loop in which its lanes part and meet in every round.
constexpr char kDivergentSpin[] = R"(
setp.ge.u32 %p1, %r1, 32; @%p1 bra SIGNAL;
and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0;
LOOP:
mov.u32 %r3, 1;
@%p2 bra ODD;
ld.volatile.global.u32 %r3, [%rd1];
ODD:
setp.ne.u32 %p3, %r3, 0;
vote.sync.all.pred %p4, %p3, 0xffffffff;
@!%p4 bra LOOP;
st.global.u32 [%rd3+4], 7;
ret;
SIGNAL:
st.volatile.global.u32 [%rd1], 1;
ret;
)";

TEST_CASE("a warp whose spinning lanes diverge lets the other warps run") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    RunOptions options;
    options.block.x = 64;
    options.schedule_seed = seed;
    const RunResult result = RunBody(kDivergentSpin, options);
    INFO(result.outcome.error.message);
    REQUIRE(result.outcome.ok);
    CHECK(result.out[5] >> 32 == 7);
  }
}

// Found by fuzz_executor: each try took up to 1.6 s.
TEST_CASE("a program that tries to wait a number of times and then goes on does so soon") {
  const auto start = std::chrono::steady_clock::now();
  RunOptions options;
  options.block.x = 64;
  const RunResult result = RunBody(R"(
.shared .align 8 .b64 barrier;
mov.u32 %r2, barrier;
setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 2;
READY:
bar.sync 0;
mov.u32 %r3, 0;
AGAIN:
add.u32 %r3, %r3, 1;
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
setp.lt.u32 %p3, %r3, 200;
@%p3 bra AGAIN;
st.global.u32 [%rd3], %r3;
)",
                                   options);
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 200);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("a launch that does not end is stopped at its instruction limit") {
  DeviceMemory memory;
  auto program = Program::Load(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel()
{
.reg .b32 %r<2>;
mov.u32 %r0, 0;
LOOP: add.u32 %r0, %r0, 1;
bra LOOP;
})",
                               memory);
  REQUIRE(program.ok());
  for (const uint64_t seed : {0, 1}) {
    LaunchConfig config;
    config.grid.x = 2;
    config.block.x = 64;
    config.schedule_seed = seed;
    config.instruction_limit = 1'000'000;
    const LaunchOutcome outcome =
        Run(**program, *(*program)->FindKernel("kernel"), config, DeviceModel{}, memory, 1);
    CHECK(!outcome.ok);
    CHECK(outcome.error.code == LaunchError::Code::kInstructionLimit);
    CHECK(outcome.error.message.find("more than 1000000 thread-instructions") != std::string::npos);
    CHECK(outcome.thread_instructions < 2'000'000);
  }
}

}  // namespace
}  // namespace ops_debug::emulator
