// What instrumented PTX contains: twins, plans, sites, and code shape.
#include "shadow/passes/instrument.h"

#include <catch2/catch.hpp>
#include <string>

#include "ptx/parser.h"
#include "shadow/abi/device_abi.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

InstrumentedModule InstrumentOrDie(const std::string& text) {
  auto result = Instrument(text, Rewrite::kMemoryChecks);
  if (!result.ok()) throw std::runtime_error(result.error().ToString());
  return std::move(result).value();
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) count++;
  return count;
}

// The twin's text only.
std::string TwinOf(const InstrumentedModule& module) {
  return module.ptx.substr(module.ptx.find(".entry k$ops_debug"));
}

constexpr char kSaxpyBody[] = R"(
    ld.param.u64 %rd1, [k_p];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.s32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    st.global.f32 [%rd4+4], %f1;)";

TEST_CASE("the original entry stays token for token, the twin stands beside it") {
  const std::string entry = EntryText(kSaxpyBody);
  const InstrumentedModule module = InstrumentOrDie(ModuleText(entry));
  auto null = Instrument(ModuleText(entry), Rewrite::kNull);
  REQUIRE(null.ok());
  const std::string original = null->ptx.substr(null->ptx.find(".visible .entry"));
  CHECK(module.ptx.find(original) != std::string::npos);
  CHECK(Count(module.ptx, ".entry k$ops_debug") == 1);
}

TEST_CASE("the plan gives the launch parameter's place and the slots of the pointer") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(kSaxpyBody)));
  REQUIRE(module.kernels.size() == 1);
  const KernelPlan& plan = module.kernels[0];
  CHECK(plan.twin == "k$ops_debug");
  CHECK(plan.parameter_bytes == 24);
  CHECK(plan.launch_parameter_offset == 24);
  REQUIRE(plan.slots.size() == 1);
  CHECK(plan.slots[0].parameter_offset == 0);
  CHECK(plan.slots[0].access_bytes == 4);
  CHECK(plan.slots[0].alignment_bytes == 4);
  CHECK(plan.launch_parameter_bytes == sizeof(LaunchHeader) + sizeof(BoundsEntry));
  CHECK(plan.checked_accesses == 2);
}

TEST_CASE("every access has a site with its instruction, line and parameter") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(kSaxpyBody)));
  REQUIRE(module.sites.size() == 2);
  CHECK(module.sites[0].kind == AccessKind::kLoad);
  CHECK(module.sites[0].instruction == "ld.global.f32 %f1, [%rd4];");
  CHECK(module.sites[0].parameter_index == 0);
  CHECK(module.sites[1].kind == AccessKind::kStore);
  CHECK(module.sites[1].ptx_line == module.sites[0].ptx_line + 1);
}

TEST_CASE("accesses of one straight piece share one branch") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(kSaxpyBody)));
  CHECK(Count(TwinOf(module), "bra $ods_slow") == 1);
  CHECK(Count(TwinOf(module), "__ops_debug_check") == 2);
}

TEST_CASE("an address that depends on a load of the group starts a new group") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd2, [k_q];
    ld.global.u32 %r1, [%rd1];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];)")));
  CHECK(Count(TwinOf(module), "bra $ods_slow") == 2);
}

TEST_CASE("a barrier is never copied into a slow block") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(R"(
    ld.param.u64 %rd1, [k_p];
    st.global.f32 [%rd1], %f1;
    bar.sync 0;
    ld.global.f32 %f2, [%rd1];)")));
  CHECK(Count(TwinOf(module), "bar.sync") == 1);
  CHECK(Count(TwinOf(module), "bra $ods_slow") == 2);
}

TEST_CASE("a guarded access is tested under its guard") {
  const InstrumentedModule module = InstrumentOrDie(
      ModuleText(EntryText("ld.param.u64 %rd1, [k_p];\n@!%p1 st.global.f32 [%rd1], %f1;")));
  CHECK(Count(TwinOf(module), "setp.gt.and.u64 %odsp") == 1);
  CHECK(Count(TwinOf(module), "!%p1") >= 1);
}

TEST_CASE("alignment is tested at run time only where the terms do not prove it") {
  const InstrumentedModule aligned = InstrumentOrDie(ModuleText(EntryText(kSaxpyBody)));
  CHECK(Count(TwinOf(aligned), "and.b64 %odst") == 0);
  const InstrumentedModule odd = InstrumentOrDie(ModuleText(
      EntryText("ld.param.u64 %rd1, [k_p];\nadd.s64 %rd2, %rd1, 1;\nst.global.f32 [%rd2], %f1;")));
  CHECK(Count(TwinOf(odd), "and.b64 %odst") == 1);
  CHECK(odd.kernels[0].slots[0].alignment_bytes == 1);
}

TEST_CASE("a constant index into a declared array is decided while rewriting") {
  const std::string array = ".shared .align 4 .b8 tile[128];\n";
  const InstrumentedModule inside =
      InstrumentOrDie(ModuleText(EntryText(array + "st.shared.f32 [tile+124], %f1;")));
  CHECK(inside.sites.empty());
  CHECK(inside.kernels[0].checked_accesses == 1);
  const InstrumentedModule outside =
      InstrumentOrDie(ModuleText(EntryText(array + "st.shared.f32 [tile+128], %f1;")));
  REQUIRE(outside.sites.size() == 1);
  CHECK(outside.sites[0].variable == "tile");
  CHECK(outside.sites[0].variable_bytes == 128);
}

TEST_CASE("a pointer loaded from memory is looked up in shadow memory") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(
      "ld.param.u64 %rd1, [k_p];\nld.global.u64 %rd2, [%rd1];\nst.global.f32 [%rd2], %f1;")));
  CHECK(Count(TwinOf(module), std::string("ld.const.u64 %odsdir, [") + kModuleContextSymbol) == 1);
}

TEST_CASE("what no check covers is counted by name and reason") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(R"(
    mbarrier.init.shared.b64 [%r1], 1;
    mbarrier.init.shared.b64 [%r1+8], 1;)")));
  REQUIRE(module.kernels[0].unchecked.size() == 1);
  CHECK(module.kernels[0].unchecked[0].instruction == "mbarrier.init.shared.b64");
  CHECK(module.kernels[0].unchecked[0].count == 2);
}

TEST_CASE("a called function has a twin that receives the launch id") {
  const InstrumentedModule module = InstrumentOrDie(
      ModuleText(".func store(.param .b64 a)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, "
                 "[a];\nst.u32 [%rd1], 1;\nret;\n}\n" +
                 EntryText("{\n.param .b64 a0;\nst.param.b64 [a0], %rd1;\ncall store, (a0);\n}")));
  CHECK(Count(module.ptx, "store$ops_debug_launch") >= 2);
  CHECK(Count(TwinOf(module), "store$ops_debug") == 1);
  REQUIRE(module.sites.size() == 1);
  CHECK(module.sites[0].function == "store");
}

TEST_CASE("a function whose address is taken keeps its prototype") {
  const InstrumentedModule module =
      InstrumentOrDie(ModuleText(".func callee()\n{\nret;\n}\n" +
                                 EntryText("mov.u64 %rd1, callee;\nproto: .callprototype _ ();\n"
                                           "call %rd1, (), proto;")));
  CHECK(Count(module.ptx, "callee$ops_debug_launch") == 0);
  CHECK(Count(TwinOf(module), "mov.u64 %rd1, callee$ops_debug;") == 1);
}

TEST_CASE("a list of call targets names the twins too") {
  const InstrumentedModule module = InstrumentOrDie(
      ModuleText(".func f()\n{\nret;\n}\n.func ff()\n{\nret;\n}\n" +
                 EntryText("mov.u64 %rd1, f;\ntargets: .calltargets f;\ncall %rd1, targets;")));
  CHECK(Count(TwinOf(module), ".calltargets f, f$ops_debug;") == 1);
}

TEST_CASE("inlining gives frames from the innermost out") {
  const InstrumentedModule module = InstrumentOrDie(
      ModuleText(EntryText(R"(
    .loc 1 20 3
    ld.param.u64 %rd1, [k_p];
    .loc 2 5 7, function_name $L__info_string0, inlined_at 1 20 3
    st.global.f32 [%rd1], %f1;)") +
                 ".file 1 \"/src/kernel.cu\"\n.file 2 \"/src/inner.cuh\"\n"
                 ".section .debug_str\n{\n$L__info_string0:\n.b8 95,90,49,102\n.b8 118,0\n}\n"));
  REQUIRE(module.sites.size() == 1);
  const auto& frames = module.sites[0].frames;
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].file == "/src/inner.cuh");
  CHECK(frames[0].line == 5);
  CHECK(frames[0].function == "_Z1fv");
  CHECK(frames[1].file == "/src/kernel.cu");
  CHECK(frames[1].line == 20);
}

TEST_CASE("a loop that only polls global memory waits for other blocks") {
  const auto waits = [](const std::string& loop) {
    return InstrumentOrDie(ModuleText(EntryText("ld.param.u64 %rd1, [k_p];\nloop:\n" + loop)))
        .kernels[0]
        .waits_for_blocks;
  };
  CHECK(waits("ld.volatile.global.u32 %r1, [%rd1];\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra loop;"));
  CHECK(
      waits("atom.global.add.u32 %r1, [%rd1], 0;\nsetp.ge.u32 %p1, %r1, 8;\n@%p1 bra out;\nbra "
            "loop;\nout:"));
  // A work queue, a loop with a counter, a poll of shared memory.
  CHECK_FALSE(
      waits("atom.global.add.u32 %r1, [%rd1], 1;\nst.global.u32 [%rd1+8], %r1;\n"
            "setp.lt.u32 %p1, %r1, 8;\n@%p1 bra loop;"));
  CHECK_FALSE(
      waits("ld.volatile.global.u32 %r1, [%rd1];\nadd.s32 %r2, %r2, 1;\nsetp.lt.s32 %p1, %r2, 8;\n"
            "@%p1 bra loop;"));
  CHECK_FALSE(
      waits("ld.volatile.shared.u32 %r1, [%r3];\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra loop;"));
}

TEST_CASE("an entry whose parameters fill the parameter space has no twin and says why") {
  const InstrumentedModule module = InstrumentOrDie(
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .align 8 .b8 "
      "k_p[4096])\n{\nret;\n}\n");
  REQUIRE(module.kernels.size() == 1);
  CHECK(module.kernels[0].twin.empty());
  CHECK_FALSE(module.kernels[0].reason.empty());
}

TEST_CASE("PTX older than the device part gets its version") {
  const InstrumentedModule module = InstrumentOrDie(
      ".version 5.0\n.target sm_60\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n");
  CHECK(module.ptx.find(".version 6.4") != std::string::npos);
}

TEST_CASE("a syntax error comes back with its place") {
  const auto result = Instrument(ModuleText(EntryText("add.s32 %r1, %r2")), Rewrite::kMemoryChecks);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().line == 11);  // of `ret`, where ';' was expected
}

TEST_CASE("what was instrumented parses again") {
  const InstrumentedModule module = InstrumentOrDie(ModuleText(EntryText(kSaxpyBody)));
  CHECK(ptx::Parse(module.ptx).ok());
}

}  // namespace
}  // namespace ops_debug::shadow
