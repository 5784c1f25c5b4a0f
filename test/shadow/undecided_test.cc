// What is left to the CPU device: each way to synchronise that the twin does not follow makes its
// kernel undecided, and what the twin decides does not.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "shadow/passes/instrument.h"
#include "shadow/passes/waiting_loops.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

constexpr Checks kRaces{.memory = false, .races = true};
constexpr Checks kSync{.memory = false, .sync = true};
constexpr Checks kInit{.memory = false, .init = true};
constexpr Checks kAll{.memory = false, .races = true, .sync = true, .init = true};

constexpr char kShared[] =
    ".shared .align 16 .b8 tile[1024];\n.extern .shared .align 16 .b8 dynamic[];\n";
constexpr char kBegin[] = R"(
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [k_p];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [k_q];
    cvta.to.global.u64 %rd4, %rd3;
    mov.u32 %r2, tile;
)";

KernelPlan PlanOf(const std::string& body, const Checks& checks, const std::string& items = "") {
  auto result = Instrument(ModuleText(kShared + items + EntryText(kBegin + body)),
                           Rewrite::kMemoryChecks, checks);
  if (!result.ok()) throw std::runtime_error(result.error().ToString());
  REQUIRE(result->kernels.size() == 1);
  return result->kernels[0];
}

// The part in front of the colon of each reason, joined.
std::string Undecided(const std::string& body, const Checks& checks,
                      const std::string& items = "") {
  std::string all;
  for (const std::string& reason : PlanOf(body, checks, items).undecided)
    all += (all.empty() ? "" : "; ") + reason.substr(0, reason.find(':'));
  return all;
}

bool Waits(const std::string& body, PolledMemory memory) {
  const ptx::Module module = ParseOrDie(ModuleText(kShared + EntryText(kBegin + body)));
  return WaitsInLoop(*module.FindFunction("k"), memory);
}

}  // namespace

TEST_CASE("plain kernels with barriers of the whole block are decided") {
  CHECK(Undecided("ld.global.f32 %f1, [%rd2];\nst.shared.f32 [%r2], %f1;\nbar.sync 0;\n"
                  "ld.shared.f32 %f2, [tile+4];\nst.global.f32 [%rd4], %f2;",
                  kAll) == "");
  CHECK(Undecided("atom.global.add.u32 %r3, [%rd2], 1;\nst.global.u32 [%rd4], %r3;", kAll) == "");
}

TEST_CASE("without checks nothing is undecided") {
  CHECK(PlanOf("membar.gl;\nbarrier.cluster.arrive;", Checks{}).undecided.empty());
}

TEST_CASE("what orders memory otherwise than by barriers is undecided for races") {
  constexpr char kFences[] = "fences, acquire and release";
  CHECK(Undecided("membar.gl;", kRaces) == kFences);
  CHECK(Undecided("fence.acq_rel.gpu;", kRaces) == kFences);
  CHECK(Undecided("ld.acquire.gpu.global.u32 %r3, [%rd2];", kRaces) == kFences);
  CHECK(Undecided("red.release.gpu.global.add.u32 [%rd2], 1;", kRaces) == kFences);
  CHECK(Undecided("membar.gl;", kSync) == "");
  CHECK(Undecided("ld.relaxed.gpu.global.u32 %r3, [%rd2];", kRaces) == "");
}

TEST_CASE("asynchronous copies and other blocks' memory are undecided") {
  CHECK(Undecided("cp.async.ca.shared.global [%r2], [%rd2], 16;\ncp.async.wait_all;", kRaces) ==
        "cp.async");
  CHECK(Undecided("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 64;", kRaces) ==
        "bulk copies (asynchronous proxy)");
  CHECK(Undecided("mbarrier.init.shared.b64 [tile], 32;", kSync) == "mbarrier");
  CHECK(Undecided("mapa.shared::cluster.u32 %r3, %r2, 1;", kRaces) == "distributed shared memory");
  CHECK(Undecided("st.shared::cluster.u32 [%r2], 1;", kRaces) == "distributed shared memory");
  CHECK(Undecided("barrier.cluster.arrive;\nbarrier.cluster.wait;", kSync) == "barrier.cluster");
  CHECK(Undecided("griddepcontrol.wait;", kRaces) == "griddepcontrol");
}

TEST_CASE("volatile shared memory and maxima of floats are undecided for races") {
  CHECK(Undecided("ld.volatile.shared.u32 %r3, [tile];", kRaces) ==
        "volatile accesses to shared memory");
  CHECK(Undecided("ld.volatile.global.u32 %r3, [%rd2];", kRaces) == "");
  CHECK(Undecided("mov.b32 %r3, %f1;\nred.global.max.u32 [%rd2], %r3;", kRaces) ==
        "an integer maximum or minimum of floats");
  CHECK(Undecided("red.global.max.u32 [%rd2], %r1;", kRaces) == "");
}

TEST_CASE("masks are decided when they are of all lanes in code that warps pass as one") {
  constexpr char kDivergent[] = "shfl.sync and its like in divergent code";
  CHECK(Undecided("shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;", kSync) == "");
  CHECK(Undecided("mov.b32 %r5, -1;\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, %r5;", kSync) == "");
  CHECK(Undecided("shfl.sync.bfly.b32 %r3, %r1, 1, 31, 65535;", kSync) ==
        "masks of shfl.sync and its like");
  CHECK(Undecided("bar.warp.sync 65535;", kRaces) == "bar.warp.sync of some lanes");
  CHECK(Undecided("bar.warp.sync -1;", kRaces) == "");
  // The first warp, half of it, and who finds something in memory.
  const std::string shuffle = "@%p1 bra DONE;\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\nDONE:\n";
  CHECK(Undecided("setp.gt.u32 %p1, %r1, 31;\n" + shuffle, kSync) == "");
  CHECK(Undecided("shr.u32 %r5, %r1, 5;\nsetp.eq.s32 %p1, %r5, 2;\n" + shuffle, kSync) == "");
  CHECK(Undecided("setp.gt.u32 %p1, %r1, 15;\n" + shuffle, kSync) == kDivergent);
  CHECK(Undecided("ld.global.u32 %r5, [%rd2];\nsetp.eq.s32 %p1, %r5, 0;\n" + shuffle, kSync) ==
        kDivergent);
  CHECK(Undecided("vote.sync.any.pred %p1, %p2, -1;\n" + shuffle, kSync) == "");
}

TEST_CASE("barriers are decided when the whole block comes") {
  const std::string barrier = "@%p1 bra DONE;\nbar.sync 0;\nDONE:\n";
  CHECK(Undecided("ld.param.u32 %r5, [k_n];\nsetp.eq.s32 %p1, %r5, 0;\n" + barrier, kSync) == "");
  CHECK(Undecided("setp.gt.u32 %p1, %r1, 31;\n" + barrier, kSync) == "barriers in divergent code");
  CHECK(Undecided("bar.sync 1, 64;", kSync) == "barriers for a number of threads");
  CHECK(Undecided("bar.arrive 1, 64;", kSync) == "barriers for a number of threads");
  CHECK(Undecided("mov.u32 %r5, %ntid.x;\nbar.sync 1, %r5;", kSync) == "");
}

TEST_CASE("a loop that waits is undecided for synchronisation, in any memory") {
  const std::string of_global =
      "A:\nld.volatile.global.u32 %r3, [%rd2];\nsetp.eq.s32 %p1, %r3, 0;\n"
      "@%p1 bra A;\n";
  const std::string of_shared =
      "A:\nld.volatile.shared.u32 %r3, [tile];\nsetp.eq.s32 %p1, %r3, 0;\n"
      "@%p1 bra A;\n";
  CHECK(Undecided(of_global, kSync) == "a loop that waits for a value");
  CHECK(Undecided(of_shared, kSync) == "a loop that waits for a value");
  CHECK(Waits(of_global, PolledMemory::kGlobal));
  CHECK_FALSE(Waits(of_shared, PolledMemory::kGlobal));
  CHECK(Waits(of_shared, PolledMemory::kAny));
}

TEST_CASE("a lock waits, an update by compare-and-swap does not") {
  CHECK(Waits("A:\natom.global.cas.b32 %r3, [%rd2], 0, 1;\nsetp.ne.s32 %p1, %r3, 0;\n@%p1 bra A;\n",
              PolledMemory::kGlobal));
  CHECK_FALSE(
      Waits("ld.global.u32 %r3, [%rd2];\nA:\nadd.s32 %r4, %r3, 1;\n"
            "atom.global.cas.b32 %r5, [%rd2], %r3, %r4;\nsetp.ne.s32 %p1, %r5, %r3;\n"
            "mov.u32 %r3, %r5;\n@%p1 bra A;\n",
            PolledMemory::kGlobal));
}

TEST_CASE("local and dynamic shared memory are undecided for initialisation") {
  CHECK(Undecided(".local .align 4 .b8 __local_depot0[64];\nmov.u64 %rd5, __local_depot0;\n"
                  "ld.local.u32 %r3, [%rd5];",
                  kInit) == "local memory");
  CHECK(Undecided("ld.shared.u32 %r3, [dynamic];\nst.global.u32 [%rd2], %r3;", kInit) ==
        "dynamic shared memory");
  CHECK(Undecided("st.shared.u32 [dynamic], 1;", kInit) == "");
}

TEST_CASE("declared shared memory is decided where whole elements surely matter") {
  const std::string use = "ld.shared.u32 %r3, [tile];\nst.global.u32 [%rd2], %r3;";
  CHECK(Undecided("st.shared.u32 [tile], 1;\n" + use, kInit) == "");
  CHECK(Undecided("st.shared.u8 [tile], 1;\n" + use, kInit) ==
        "shared memory that is written in parts of what is read");
  CHECK(Undecided("st.shared.u32 [tile], 1;\nld.shared.u32 %r3, [tile];\nand.b32 %r4, %r3, 255;\n"
                  "st.global.u32 [%rd2], %r4;",
                  kInit) == "values read from shared memory");
}

TEST_CASE("reads of global memory are listed by the pointer") {
  const KernelPlan one = PlanOf("ld.global.u32 %r3, [%rd4];\nst.global.u32 [%rd2], %r3;", kInit);
  CHECK(one.unwritten_reads.parameter_offsets == std::vector<uint32_t>{16});
  CHECK_FALSE(one.unwritten_reads.elsewhere);
  const KernelPlan indirect =
      PlanOf("ld.global.u64 %rd5, [%rd2];\nld.global.u32 %r3, [%rd5];", kInit);
  CHECK(indirect.unwritten_reads.parameter_offsets == std::vector<uint32_t>{0});
  CHECK(indirect.unwritten_reads.elsewhere);
  CHECK(PlanOf("st.global.u32 [%rd2], 1;", kInit).unwritten_reads.parameter_offsets.empty());
  CHECK(PlanOf("ld.global.u32 %r3, [%rd4];", kRaces).unwritten_reads.parameter_offsets.empty());
}

TEST_CASE("what a called function does counts for its callers, and for no other entry") {
  const std::string items =
      ".func fenced()\n{\nmembar.gl;\nret;\n}\n.visible .entry other()\n{\nret;\n}\n";
  auto result =
      Instrument(ModuleText(kShared + items + EntryText(std::string(kBegin) + "call fenced;")),
                 Rewrite::kMemoryChecks, kRaces);
  REQUIRE(result.ok());
  for (const KernelPlan& kernel : result->kernels)
    CHECK(kernel.undecided.size() == (kernel.name == "k" ? 1 : 0));
}

TEST_CASE("a call through a pointer is undecided, as is what it may reach") {
  const std::string items = ".func fenced()\n{\nmembar.gl;\nret;\n}\n";
  CHECK(Undecided("mov.u64 %rd5, fenced;\n{\ncall %rd5, P;\n}\nP: .callprototype _ ();\n", kRaces,
                  items) == "a call through a pointer; fences, acquire and release");
}

TEST_CASE("instructions that no check understands are undecided by their name") {
  CHECK(
      Undecided("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r3, %r4, %r5, %r6, %r7, %r8, "
                "%r9, %r10}, [%rd2];",
                kRaces)
          .starts_with("wmma.load"));
}

}  // namespace ops_debug::shadow
