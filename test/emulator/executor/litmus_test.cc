// Small concurrent programs under many chosen schedules. The names are those of the literature (MP:
// message passing, SB: store buffering, IRIW: independent reads of independent writes, ...;
// Alglave, Maranget, Tautschnig: Herding cats, TOPLAS 2014). An outcome that the PTX memory model
// forbids must never show; one that it allows and that we claim to produce must show.
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "emulator/executor.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kSeeds = 1500;

// Code of each thread. [%x], [%y]: two variables in different cache lines, zero at the start; %a,
// %b: the thread's two results, zero at the start.
struct Litmus {
  std::vector<std::string> threads;
  bool one_block = false;        // threads are warps of one block; else blocks of their own
  std::string space = "global";  // or shared, with one_block
};

using Outcome = std::vector<uint32_t>;  // %a and %b of each thread, in order

std::string Source(const Litmus& litmus) {
  const bool shared = litmus.space == "shared";
  std::string text = R"(.version 8.5
.target sm_90
.address_size 64
.global .align 128 .b32 gx[32];
.global .align 128 .b32 gy[32];
.visible .entry kernel(.param .u64 out)
{
.reg .pred %p<8>; .reg .b32 %a, %b, %t<8>; .reg .b64 %x, %y, %o;
.shared .align 128 .b32 sx[32];
.shared .align 128 .b32 sy[32];
ld.param.u64 %o, [out];
mov.b32 %a, 0; mov.b32 %b, 0;
)";
  text += shared ? "mov.u64 %x, sx; mov.u64 %y, sy;\n" : "mov.u64 %x, gx; mov.u64 %y, gy;\n";
  text +=
      litmus.one_block ? "mov.u32 %t0, %tid.x; shr.u32 %t0, %t0, 5;\n" : "mov.u32 %t0, %ctaid.x;\n";
  if (litmus.one_block) {
    text += "mov.u32 %t1, %laneid; setp.ne.u32 %p0, %t1, 0; @%p0 bra DONE;\n";
  }
  for (size_t i = 0; i < litmus.threads.size(); ++i)
    text +=
        "setp.eq.u32 %p1, %t0, " + std::to_string(i) + "; @%p1 bra T" + std::to_string(i) + ";\n";
  for (size_t i = 0; i < litmus.threads.size(); ++i)
    text += "T" + std::to_string(i) + ":\n" + litmus.threads[i] + "\nbra STORE;\n";
  text += R"(STORE: mul.wide.u32 %x, %t0, 8; add.u64 %o, %o, %x;
st.global.u32 [%o], %a; st.global.u32 [%o+4], %b;
DONE: ret;
})";
  return text;
}

std::set<Outcome> Outcomes(const Litmus& litmus, uint64_t seeds = kSeeds) {
  DeviceMemory memory;
  auto loaded = Program::Load(Source(litmus), memory);
  if (!loaded.ok()) FAIL(loaded.error().ToString() << "\n" << Source(litmus));
  const Program& program = **loaded;
  const Kernel* kernel = program.FindKernel("kernel");
  REQUIRE(kernel != nullptr);
  REQUIRE(program.UnsupportedInstructions().empty());
  const size_t count = litmus.threads.size();
  const uint64_t out = memory.Allocate(count * 8);
  LaunchConfig config;
  config.grid = {litmus.one_block ? 1u : static_cast<uint32_t>(count), 1, 1};
  config.block = {litmus.one_block ? static_cast<uint32_t>(count) * 32 : 1u, 1, 1};
  config.parameters = std::as_bytes(std::span(&out, 1));
  uint64_t variables[2] = {}, bytes = 0;
  REQUIRE(program.FindVariable("gx", &variables[0], &bytes));
  REQUIRE(program.FindVariable("gy", &variables[1], &bytes));
  std::set<Outcome> outcomes;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const uint64_t variable : variables)
      std::memset(reinterpret_cast<void*>(variable), 0, bytes);
    config.schedule_seed = seed;
    const LaunchOutcome result = Run(program, *kernel, config, DeviceModel{}, memory, 0);
    if (!result.ok) FAIL("seed " << seed << ": " << result.error.message);
    const auto* words = reinterpret_cast<const uint32_t*>(out);
    outcomes.insert(Outcome(words, words + count * 2));
  }
  return outcomes;
}

// Thread 1's results when thread 0 writes x and then y, and thread 1 reads y (%a) and then x (%b).
std::set<Outcome> MessagePassing(const std::string& write_x, const std::string& write_y,
                                 const std::string& read_y, const std::string& read_x,
                                 bool one_block = false, const std::string& space = "global") {
  return Outcomes(
      {.threads = {write_x + write_y, read_y + read_x}, .one_block = one_block, .space = space});
}

const Outcome kStale = {0, 0, 1, 0};
const Outcome kPassed = {0, 0, 1, 1};
const Outcome kEarly = {0, 0, 0, 0};

TEST_CASE("MP: without fences the flag may arrive before the data") {
  const auto seen =
      MessagePassing("st.global.u32 [%x], 1;", "st.relaxed.gpu.global.u32 [%y], 1;",
                     "ld.relaxed.gpu.global.u32 %a, [%y];", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
  CHECK(seen.count(kPassed) == 1);
  CHECK(seen.count(kEarly) == 1);
}

TEST_CASE("MP: volatile accesses do not order each other") {
  const auto seen =
      MessagePassing("st.volatile.global.u32 [%x], 1;", "st.volatile.global.u32 [%y], 1;",
                     "ld.volatile.global.u32 %a, [%y];", "ld.volatile.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
}

TEST_CASE("MP: a fence on the writer's side alone does not suffice") {
  const auto seen = MessagePassing(
      "st.global.u32 [%x], 1; fence.acq_rel.gpu;", "st.relaxed.gpu.global.u32 [%y], 1;",
      "ld.relaxed.gpu.global.u32 %a, [%y];", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
}

TEST_CASE("MP: a fence on the reader's side alone does not suffice") {
  const auto seen = MessagePassing("st.global.u32 [%x], 1;", "st.relaxed.gpu.global.u32 [%y], 1;",
                                   "ld.relaxed.gpu.global.u32 %a, [%y]; fence.acq_rel.gpu;",
                                   "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
}

TEST_CASE("MP: fences on both sides order") {
  const auto seen = MessagePassing(
      "st.global.u32 [%x], 1; fence.acq_rel.gpu;", "st.relaxed.gpu.global.u32 [%y], 1;",
      "ld.relaxed.gpu.global.u32 %a, [%y]; fence.acq_rel.gpu;", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 0);
  CHECK(seen.count(kPassed) == 1);
  CHECK(seen.count(kEarly) == 1);
}

TEST_CASE("MP: membar.gl and volatile flags order") {
  const auto seen =
      MessagePassing("st.global.u32 [%x], 1; membar.gl;", "st.volatile.global.u32 [%y], 1;",
                     "ld.volatile.global.u32 %a, [%y]; membar.gl;", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 0);
  CHECK(seen.count(kPassed) == 1);
}

TEST_CASE("MP: release and acquire order") {
  const auto seen =
      MessagePassing("st.global.u32 [%x], 1;", "st.release.gpu.global.u32 [%y], 1;",
                     "ld.acquire.gpu.global.u32 %a, [%y];", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 0);
  CHECK(seen.count(kPassed) == 1);
  CHECK(seen.count(kEarly) == 1);
}

TEST_CASE("MP: a releasing and an acquiring atomic order") {
  const auto seen =
      MessagePassing("st.global.u32 [%x], 1;", "atom.add.release.gpu.global.u32 %t2, [%y], 1;",
                     "atom.add.acquire.gpu.global.u32 %a, [%y], 0;", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 0);
  CHECK(seen.count(kPassed) == 1);
}

TEST_CASE("MP: atomics are relaxed unless they say more") {
  const auto seen = MessagePassing("st.global.u32 [%x], 1;", "red.add.global.u32 [%y], 1;",
                                   "atom.add.global.u32 %a, [%y], 0;", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
}

TEST_CASE("MP: fences of block scope do not order between blocks") {
  const auto seen = MessagePassing(
      "st.global.u32 [%x], 1; fence.acq_rel.cta;", "st.relaxed.gpu.global.u32 [%y], 1;",
      "ld.relaxed.gpu.global.u32 %a, [%y]; fence.acq_rel.gpu;", "ld.global.u32 %b, [%x];");
  CHECK(seen.count(kStale) == 1);
}

TEST_CASE("MP: fences of block scope order within a block") {
  for (const char* space : {"global", "shared"}) {
    const std::string s(space);
    INFO(s);
    const auto seen = MessagePassing("st." + s + ".u32 [%x], 1; membar.cta;",
                                     "st.relaxed.cta." + s + ".u32 [%y], 1;",
                                     "ld.relaxed.cta." + s + ".u32 %a, [%y]; fence.acq_rel.cta;",
                                     "ld." + s + ".u32 %b, [%x];", true, s);
    CHECK(seen.count(kStale) == 0);
    CHECK(seen.count(kPassed) == 1);
    CHECK(seen.count(kEarly) == 1);
  }
}

TEST_CASE("MP: within a block the flag may arrive before the data, in shared memory too") {
  for (const char* space : {"global", "shared"}) {
    const std::string s(space);
    INFO(s);
    const auto seen = MessagePassing(
        "st." + s + ".u32 [%x], 1;", "st.volatile." + s + ".u32 [%y], 1;",
        "ld.volatile." + s + ".u32 %a, [%y];", "ld." + s + ".u32 %b, [%x];", true, s);
    CHECK(seen.count(kStale) == 1);
    CHECK(seen.count(kPassed) == 1);
  }
}

TEST_CASE("MP: a barrier orders within a block") {
  for (const char* space : {"global", "shared"}) {
    const std::string s(space);
    INFO(s);
    // Lane 0 of each warp comes here; the others have exited.
    const auto seen = Outcomes({.threads = {"st." + s + ".u32 [%x], 1; barrier.sync 0;",
                                            "barrier.sync 0; ld." + s + ".u32 %b, [%x];"},
                                .one_block = true,
                                .space = s});
    CHECK(seen == std::set<Outcome>{{0, 0, 0, 1}});
  }
}

// Three threads: the first writes x, the second passes on with a barrier in its block, ...
TEST_CASE("ISA2: order is transitive over a second thread and variable") {
  const auto seen =
      Outcomes({.threads = {"st.global.u32 [%x], 1; st.release.gpu.global.u32 [%y], 1;",
                            "ld.acquire.gpu.global.u32 %a, [%y];"
                            "st.release.gpu.global.u32 [%y+64], 1;",
                            "ld.acquire.gpu.global.u32 %a, [%y+64];"
                            "ld.global.u32 %b, [%x];"}});
  for (const Outcome& outcome : seen)
    CHECK_FALSE((outcome[2] == 1 && outcome[4] == 1 && outcome[5] == 0));
}

TEST_CASE("release sequence: an acquire that reads a later atomic update synchronises") {
  const auto seen =
      Outcomes({.threads = {"st.global.u32 [%x], 1; st.release.gpu.global.u32 [%y], 1;",
                            "atom.cas.relaxed.gpu.global.b32 %a, [%y], 1, 2;",
                            "ld.acquire.gpu.global.u32 %a, [%y]; ld.global.u32 %b, [%x];"}});
  bool chained = false;
  for (const Outcome& outcome : seen) {
    if (outcome[4] != 2) continue;
    chained = true;
    CHECK(outcome[5] == 1);
  }
  CHECK(chained);
}

TEST_CASE("SB: both threads may read the old value") {
  const auto seen = Outcomes(
      {.threads = {"st.relaxed.gpu.global.u32 [%x], 1; ld.relaxed.gpu.global.u32 %a, [%y];",
                   "st.relaxed.gpu.global.u32 [%y], 1; ld.relaxed.gpu.global.u32 %a, [%x];"}});
  CHECK(seen.count({0, 0, 0, 0}) == 1);
  CHECK(seen.count({1, 0, 0, 0}) == 1);
  CHECK(seen.count({0, 0, 1, 0}) == 1);
}

TEST_CASE("SB: release and acquire do not forbid it") {
  const auto seen = Outcomes(
      {.threads = {"st.release.gpu.global.u32 [%x], 1; ld.acquire.gpu.global.u32 %a, [%y];",
                   "st.release.gpu.global.u32 [%y], 1; ld.acquire.gpu.global.u32 %a, [%x];"}});
  CHECK(seen.count({0, 0, 0, 0}) == 1);
}

TEST_CASE("SB: sequentially consistent fences forbid it") {
  const auto seen = Outcomes({.threads = {"st.relaxed.gpu.global.u32 [%x], 1; fence.sc.gpu;"
                                          "ld.relaxed.gpu.global.u32 %a, [%y];",
                                          "st.relaxed.gpu.global.u32 [%y], 1; fence.sc.gpu;"
                                          "ld.relaxed.gpu.global.u32 %a, [%x];"}});
  CHECK(seen.count({0, 0, 0, 0}) == 0);
  CHECK(seen.size() >= 2);
}

TEST_CASE("LB: nobody reads from the future") {
  const auto seen = Outcomes({.threads = {"ld.global.u32 %a, [%x]; st.global.u32 [%y], %a;",
                                          "ld.global.u32 %a, [%y]; st.global.u32 [%x], %a;"}});
  CHECK(seen == std::set<Outcome>{{0, 0, 0, 0}});
}

TEST_CASE("CoRR: reads of one location do not go back in time") {
  const auto seen = Outcomes(
      {.threads = {"st.relaxed.gpu.global.u32 [%x], 1;",
                   "ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, [%x];"}});
  CHECK(seen.count({0, 0, 1, 0}) == 0);
  CHECK(seen.count({0, 0, 0, 1}) == 1);
}

TEST_CASE("CoWR and CoRW: a thread sees its own store, and never an older value again") {
  const auto seen =
      Outcomes({.threads = {"st.relaxed.gpu.global.u32 [%x], 1;",
                            "st.relaxed.gpu.global.u32 [%x], 2; ld.relaxed.gpu.global.u32 %a, [%x];"
                            "ld.relaxed.gpu.global.u32 %b, [%x];"}});
  for (const Outcome& outcome : seen) {
    CHECK(outcome[2] != 0);
    if (outcome[2] == 1) CHECK(outcome[3] == 1);
  }
}

TEST_CASE("CoRR: two readers agree on the order of two writes") {
  const auto seen = Outcomes(
      {.threads = {"st.relaxed.gpu.global.u32 [%x], 1;", "st.relaxed.gpu.global.u32 [%x], 2;",
                   "ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, [%x];",
                   "ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, [%x];"}});
  for (const Outcome& outcome : seen) {
    const bool first = outcome[4] == 1 && outcome[5] == 2;
    const bool second = outcome[6] == 2 && outcome[7] == 1;
    CHECK_FALSE((first && second));
    const bool first_back = outcome[4] == 2 && outcome[5] == 1;
    const bool second_back = outcome[6] == 1 && outcome[7] == 2;
    CHECK_FALSE((first_back && second_back));
  }
}

TEST_CASE("IRIW: readers may disagree on the order of independent writes") {
  const auto seen = Outcomes(
      {.threads = {"st.relaxed.gpu.global.u32 [%x], 1;", "st.relaxed.gpu.global.u32 [%y], 1;",
                   "ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, [%y];",
                   "ld.relaxed.gpu.global.u32 %a, [%y]; ld.relaxed.gpu.global.u32 %b, [%x];"}},
      4 * kSeeds);
  CHECK(seen.count({0, 0, 0, 0, 1, 0, 1, 0}) == 1);
}

TEST_CASE("IRIW: with sequentially consistent fences they agree") {
  const auto seen = Outcomes(
      {.threads = {
           "st.relaxed.gpu.global.u32 [%x], 1;", "st.relaxed.gpu.global.u32 [%y], 1;",
           "ld.relaxed.gpu.global.u32 %a, [%x]; fence.sc.gpu; ld.relaxed.gpu.global.u32 %b, [%y];",
           "ld.relaxed.gpu.global.u32 %a, [%y]; fence.sc.gpu; ld.relaxed.gpu.global.u32 %b, "
           "[%x];"}});
  CHECK(seen.count({0, 0, 0, 0, 1, 0, 1, 0}) == 0);
}

TEST_CASE("2+2W: unordered writes may take effect crosswise") {
  // Results are read by the writers after a fence; the last writer of x and of y may each be the
  // first one in program order.
  const auto seen = Outcomes(
      {.threads =
           {"st.relaxed.gpu.global.u32 [%x], 1; st.relaxed.gpu.global.u32 [%y], 2;"
            "fence.sc.gpu; ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, [%y];",
            "st.relaxed.gpu.global.u32 [%y], 1; st.relaxed.gpu.global.u32 [%x], 2;"
            "fence.sc.gpu; ld.relaxed.gpu.global.u32 %a, [%x]; ld.relaxed.gpu.global.u32 %b, "
            "[%y];"}},
      4 * kSeeds);
  CHECK(seen.count({1, 1, 1, 1}) == 1);
}

TEST_CASE("atomic updates are never lost, plain ones may be") {
  const auto atomic = Outcomes(
      {.threads = {"atom.add.global.u32 %a, [%x], 1;", "atom.add.global.u32 %a, [%x], 1;"}});
  CHECK(atomic == std::set<Outcome>{{0, 0, 1, 0}, {1, 0, 0, 0}});
  const auto plain =
      Outcomes({.threads = {"ld.global.u32 %a, [%x]; add.u32 %b, %a, 1; st.global.u32 [%x], %b;",
                            "ld.global.u32 %a, [%x]; add.u32 %b, %a, 1; st.global.u32 [%x], %b;"}});
  CHECK(plain.count({0, 1, 0, 1}) == 1);
}

TEST_CASE("a 64-bit access is never torn") {
  const auto seen =
      Outcomes({.threads = {"mov.b64 %y, 0x0000000700000007; st.relaxed.gpu.global.u64 [%x], %y;",
                            "ld.relaxed.gpu.global.u64 %y, [%x]; mov.b64 {%a, %b}, %y;"}});
  CHECK(seen == std::set<Outcome>{{0, 0, 0, 0}, {0, 0, 7, 7}});
}

TEST_CASE("an asynchronous copy reads what its block has written before a barrier") {
  const auto seen = Outcomes(
      {.threads = {"st.global.u32 [%x], 5; bar.warp.sync 1; barrier.sync 0;",
                   "barrier.sync 0; mov.u32 %t2, sx; cp.async.ca.shared.global [%t2], [%x], 4;"
                   "cp.async.wait_all; ld.shared.u32 %a, [%t2];"},
       .one_block = true});
  CHECK(seen == std::set<Outcome>{{0, 0, 5, 0}});
}

}  // namespace
}  // namespace ops_debug::emulator
