// Reads of unwritten memory: which loads are followed to a use, and what the twin gets.
#include <catch2/catch.hpp>
#include <string>

#include "ptx/parser.h"
#include "shadow/passes/add_init_checks.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/value_uses.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

constexpr char kAddress[] = R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd9, [k_q];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [k_n];
)";

// Use of the first load of %f1, %r5 or %rd5 in an entry with this body; "" if none is certain.
std::string UseOf(const std::string& body) {
  const ptx::Module module = ParseOrDie(ModuleText(EntryText(kAddress + body)));
  const ptx::Function* function = module.FindFunction("k");
  ValueUses uses(*function);
  REQUIRE(uses.ok());
  for (uint32_t i = 0; i < function->body.size(); i++) {
    const auto* instruction = std::get_if<ptx::Instruction>(&function->body[i]);
    if (instruction == nullptr || !instruction->Is("ld") || !instruction->Has(".global")) continue;
    const ValueUse* use = uses.Find(i, instruction->operands[0].reg);
    return use ? use->use : "";
  }
  return "no load";
}

InstrumentedModule WithInit(const std::string& items) {
  auto result =
      Instrument(ModuleText(items), Rewrite::kMemoryChecks, Checks{.memory = false, .init = true});
  if (!result.ok()) throw std::runtime_error(result.error().ToString());
  return std::move(result).value();
}

}  // namespace

TEST_CASE("a value that is stored to global memory matters") {
  CHECK(UseOf("ld.global.f32 %f1, [%rd2];\nst.global.f32 [%rd2+4], %f1;") == "stored");
  CHECK(UseOf("ld.global.f32 %f1, [%rd2];\nadd.f32 %f2, %f1, %f3;\nst.global.f32 [%rd2+4], %f2;") ==
        "stored");
}

TEST_CASE("a value that decides a branch or makes an address matters") {
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nsetp.eq.s32 %p1, %r5, 0;\n@%p1 bra DONE;\n"
              "st.global.u32 [%rd2+4], %r1;\nDONE:\n") == "branch");
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nmul.wide.u32 %rd5, %r5, 4;\nadd.s64 %rd6, %rd2, %rd5;\n"
              "ld.global.u32 %r6, [%rd6];") == "address");
}

TEST_CASE("a value that is masked, selected or dropped does not matter") {
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nand.b32 %r6, %r5, 255;\nst.global.u32 [%rd2+4], %r6;") ==
        "");
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nsetp.lt.u32 %p1, %r1, 4;\nselp.b32 %r6, %r5, 0, %p1;\n"
              "st.global.u32 [%rd2+4], %r6;") == "");
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nmov.u32 %r5, 1;\nst.global.u32 [%rd2+4], %r5;") == "");
}

TEST_CASE("a use that not every thread reaches is not certain") {
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nsetp.lt.u32 %p1, %r1, 4;\n@%p1 bra DONE;\n"
              "st.global.u32 [%rd2+4], %r5;\nDONE:\n") == "");
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nsetp.lt.u32 %p1, %r1, 4;\n"
              "@%p1 st.global.u32 [%rd2+4], %r5;") == "");
}

TEST_CASE("a load and its use under the same guard belong together") {
  CHECK(UseOf("setp.lt.u32 %p1, %r1, 4;\n@%p1 ld.global.u32 %r5, [%rd2];\n"
              "@%p1 st.global.u32 [%rd2+4], %r5;") == "stored");
}

TEST_CASE("a sum over a loop keeps what was added") {
  CHECK(UseOf("mov.f32 %f4, 0f00000000;\nmov.u32 %r2, 0;\nLOOP:\nld.global.f32 %f1, [%rd2];\n"
              "add.f32 %f4, %f4, %f1;\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, %r1;\n"
              "@%p1 bra LOOP;\nst.global.f32 [%rd2+4], %f4;") == "stored");
}

TEST_CASE("a register that another path overwrites is not certain") {
  CHECK(UseOf("ld.global.u32 %r5, [%rd2];\nsetp.lt.u32 %p1, %r1, 4;\n@%p1 mov.u32 %r5, 0;\n"
              "st.global.u32 [%rd2+4], %r5;") == "");
}

TEST_CASE(
    "loads that matter are tested, stores are marked, and each load has a site with its use") {
  const InstrumentedModule module = WithInit(
      EntryText(std::string(kAddress) + "ld.global.f32 %f1, [%rd2];\nld.global.f32 %f2, [%rd2+8];\n"
                                        "st.global.f32 [%rd2+4], %f1;"));
  REQUIRE(module.kernels.size() == 1);
  const InitPlan& plan = module.kernels[0].init;
  CHECK(plan.checked);
  CHECK(plan.checked_loads == 1);
  CHECK(plan.not_followed == 1);
  CHECK(plan.marked_stores == 1);
  CHECK_FALSE(plan.writes_unseen);
  REQUIRE(module.sites.size() == 1);
  CHECK(module.sites[0].init);
  CHECK(module.sites[0].use == "stored");
  CHECK(module.sites[0].use_ptx_line == module.sites[0].ptx_line + 2);
}

TEST_CASE("loads through a parameter ask first whether the host knows its memory to be written") {
  const std::string body = std::string(kAddress) +
                           "ld.global.f32 %f1, [%rd2];\nld.global.f32 %f2, [%rd2+8];\n"
                           "add.f32 %f3, %f1, %f2;\nst.global.f32 [%rd2+4], %f3;";
  const InstrumentedModule module = WithInit(EntryText(body));
  const KernelPlan& plan = module.kernels[0];
  CHECK(plan.init.slots == std::vector<uint32_t>{0});
  CHECK(plan.init.written_offset == 8);
  CHECK(plan.launch_parameter_bytes == 16);
  // The two loads, never the store.
  size_t tests = 0;
  for (size_t at = module.ptx.find("@%odsiw0 bra.uni"); at != std::string::npos;
       at = module.ptx.find("@%odsiw0 bra.uni", at + 1)) {
    tests++;
  }
  CHECK(tests == 2);
  CHECK(plan.init.marked_stores == 1);
}

TEST_CASE("kernels that read nothing through parameters have no room for what is written") {
  const InstrumentedModule module =
      WithInit(EntryText(std::string(kAddress) + "st.global.u32 [%rd2+4], %r1;"));
  CHECK(module.kernels[0].init.slots.empty());
  CHECK(module.kernels[0].launch_parameter_bytes == 8);
}

TEST_CASE("what writes memory that cannot be named is told to the host") {
  CHECK(WithInit(EntryText(std::string(kAddress) +
                           "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd9, {%r1}], "
                           "[%r2];"))
            .kernels[0]
            .init.writes_unseen);
  CHECK_FALSE(WithInit(EntryText(std::string(kAddress) +
                                 "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 64;"))
                  .kernels[0]
                  .init.writes_unseen);
}

TEST_CASE("declared shared arrays get bits; entries with unknown writers of shared memory do not") {
  const std::string body =
      ".shared .align 4 .b8 s[256];\nmov.u32 %r2, s;\nst.shared.u32 [%r2], %r1;\n"
      "ld.shared.u32 %r5, [%r2+8];\nld.param.u64 %rd1, [k_p];\nst.global.u32 [%rd1], %r5;";
  const InstrumentedModule module = WithInit(EntryText(body));
  CHECK(module.ptx.find("__ops_debug_init_shared[") != std::string::npos);
  CHECK(module.kernels[0].init.checked_loads == 1);
  REQUIRE(module.sites.size() == 1);
  CHECK(module.sites[0].space == AccessSpace::kShared);
  const InstrumentedModule other =
      WithInit(EntryText(body + "\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r5};"));
  CHECK(other.kernels[0].init.checked_loads == 0);
}

TEST_CASE("shared arrays that leave no room for their bits are not checked") {
  const std::string body =
      ".shared .align 4 .b8 s[49152];\nmov.u32 %r2, s;\nst.shared.u32 [%r2], %r1;\n"
      "ld.shared.u32 %r5, [%r2+8];\nld.param.u64 %rd1, [k_p];\nst.global.u32 [%rd1], %r5;";
  const InstrumentedModule module = WithInit(EntryText(body));
  CHECK(module.ptx.find("__ops_debug_init_shared[") == std::string::npos);
  CHECK(module.kernels[0].init.checked_loads == 0);
}

TEST_CASE("each line of the rewritten text knows the line that it was") {
  const std::string text = ModuleText(EntryText(
      std::string(kAddress) + "ld.global.f32 %f1, [%rd2];\nst.global.f32 [%rd2+4], %f1;"));
  auto result = Instrument(text, Rewrite::kMemoryChecks);
  REQUIRE(result.ok());
  const auto line = [](const std::string& in, size_t number) {
    size_t at = 0;
    for (size_t i = 1; i < number; i++) at = in.find('\n', at) + 1;
    return in.substr(at, in.find('\n', at) - at);
  };
  size_t loads = 0;
  for (size_t i = 0; i < result->original_lines.size(); i++) {
    const std::string printed = line(result->ptx, i + 1);
    const uint32_t was = result->original_lines[i];
    if (printed.find("ld.global.f32 %f1, [%rd2];") != std::string::npos) {
      loads++;
      CHECK(line(text, was) == "ld.global.f32 %f1, [%rd2];");
    }
    if (printed.find("%ods") != std::string::npos) CHECK(was == 0);
  }
  CHECK(loads == 3);  // the original, and the twin's fast and slow way
}

TEST_CASE("a module that runs as it is is listed") {
  auto result = Inspect(
      ModuleText(".visible .global .align 4 .b8 table[64];\n" + EntryText("mov.u32 %r1, 0;")));
  REQUIRE(result.ok());
  REQUIRE(result->kernels.size() == 1);
  CHECK(result->kernels[0].name == "k");
  CHECK(result->kernels[0].twin.empty());
  CHECK(result->kernels[0].parameter_bytes == 24);
  REQUIRE(result->globals.size() == 1);
  CHECK(result->globals[0].name == "table");
}

}  // namespace ops_debug::shadow
