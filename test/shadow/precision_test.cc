// Numerical faults: what is tested, how few tests that takes, and what a site says.
#include <catch2/catch.hpp>
#include <string>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/parser.h"
#include "shadow/passes/accumulators.h"
#include "shadow/passes/instrument.h"
#include "shadow/passes/widened_constants.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

constexpr char kLoad[] = "ld.param.u64 %rd1, [k_p];\ncvta.to.global.u64 %rd2, %rd1;\n";

InstrumentedModule WithPrecision(const std::string& body, bool trace = false) {
  auto result = Instrument(ModuleText(EntryText(kLoad + body)), Rewrite::kMemoryChecks,
                           Checks{.memory = false, .precision = true, .precision_trace = trace});
  if (!result.ok()) throw std::runtime_error(result.error().ToString());
  return std::move(result).value();
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) count++;
  return count;
}

// Comparisons of the inline tests: those that set the group's predicate.
size_t InlineTests(const InstrumentedModule& module) {
  size_t count = 0;
  for (const char* relation : {"geu", "nan", "eq", "le", "gt", "ne"}) {
    for (const char* type : {"f32", "f64", "u16", "u32"}) {
      const std::string name = std::string("setp.") + relation;
      count += CountOf(module.ptx, name + "." + type + " %odsnp, ");
      count += CountOf(module.ptx, name + ".or." + type + " %odsnp, ");
    }
  }
  // The declaration of "none yet".
  return count - CountOf(module.ptx, "setp.ne.u32 %odsnp, 0, 0;");
}

std::map<uint32_t, Accumulator> AccumulatorsOf(const std::string& body) {
  const ptx::Module module = ParseOrDie(ModuleText(EntryText(body)));
  const ptx::Function* function = module.FindFunction("k");
  auto flow = ptx::ControlFlow::Build(*function);
  REQUIRE(flow.ok());
  return FindAccumulators(*function, ptx::DefUse(*function, *flow));
}

}  // namespace

TEST_CASE("a chain of sums and products is tested at its end") {
  const InstrumentedModule module = WithPrecision(
      "fma.rn.f32 %f3, %f1, %f2, %f4;\nadd.f32 %f5, %f3, %f1;\nfma.rn.f32 %f6, %f5, %f2, %f5;\n"
      "st.global.f32 [%rd2], %f6;");
  CHECK(module.kernels[0].precision.checked_instructions == 4);  // the store, too
  CHECK(module.numeric_sites.size() == 4);
  CHECK(InlineTests(module) == 1);
  CHECK(CountOf(module.ptx, "call __ops_debug_numeric,") == 4);
}

TEST_CASE("an exponential ends a chain: it turns minus infinity into 0") {
  CHECK(InlineTests(WithPrecision("add.f32 %f3, %f1, %f2;\nex2.approx.f32 %f4, %f3;\n")) == 3);
}

TEST_CASE("the group ends where threads may come from elsewhere") {
  const InstrumentedModule module = WithPrecision(
      "add.f32 %f3, %f1, %f2;\nHERE:\nadd.f32 %f4, %f3, %f2;\nsetp.eq.s32 %p1, %r1, "
      "0;\n@%p1 bra HERE;\n");
  CHECK(InlineTests(module) == 2);
}

TEST_CASE("an operand that is overwritten before the test is copied") {
  const InstrumentedModule module =
      WithPrecision("fma.rn.f32 %f1, %f2, %f3, %f1;\nst.global.f32 [%rd2], %f1;");
  CHECK(CountOf(module.ptx, "mov.b32 %odsns") == 1);
}

TEST_CASE("registers of a nested block are tested under other names") {
  const InstrumentedModule module = WithPrecision(
      "{\n.reg .f32 inner;\nmul.f32 inner, %f1, %f2;\nmov.f32 %f3, inner;\n}\nst.global.f32 "
      "[%rd2], "
      "%f3;");
  CHECK(CountOf(module.ptx, "mov.b32 %odsns") == 1);
  CHECK(InlineTests(module) == 3);  // infinite or NaN, 0, and what is stored
}

TEST_CASE("a guarded instruction is tested under its guard") {
  const InstrumentedModule module =
      WithPrecision("setp.lt.u32 %p1, %r1, 4;\n@!%p1 add.f32 %f3, %f1, %f2;\n");
  CHECK(CountOf(module.ptx, "@!%p1 setp.geu.or.f32 %odsnp") == 1);
}

TEST_CASE("comparisons that ask for NaN or infinity are no fault") {
  CHECK(WithPrecision("setp.nan.f32 %p1, %f1, %f2;\n").numeric_sites.empty());
  CHECK(WithPrecision("setp.neu.f32 %p1, %f1, %f1;\n").numeric_sites.empty());
  CHECK(WithPrecision("abs.f32 %f2, %f1;\nsetp.eq.f32 %p1, %f2, 0f7F800000;\n")
            .numeric_sites.empty());
  CHECK(WithPrecision("mov.f32 %f3, 0f7F800000;\nsetp.eq.f32 %p1, %f2, %f3;\n")
            .numeric_sites.empty());
  CHECK(WithPrecision("setp.lt.f32 %p1, %f1, %f2;\n").numeric_sites.size() == 1);
}

TEST_CASE("a site names types, and the load that an operand comes from") {
  const InstrumentedModule module = WithPrecision(
      ".reg .b16 %h<4>;\nld.global.f32 %f1, [%rd2];\nneg.f32 %f2, %f1;\ncvt.rn.f16.f32 %h1, %f2;\n"
      "st.global.b16 [%rd2], %h1;");
  REQUIRE(module.numeric_sites.size() == 1);
  const NumericSite& site = module.numeric_sites[0];
  CHECK(site.operand_types == std::vector<std::string>{"f32"});
  CHECK(site.result_type == "f16");
  CHECK(site.site.instruction == "cvt.rn.f16.f32 %h1, %f2;");
  REQUIRE(site.origins.size() == 1);
  CHECK(site.origins[0].site.instruction == "ld.global.f32 %f1, [%rd2];");
}

TEST_CASE("a trace measures conversions and differences, and names who narrowed") {
  const std::string body =
      ".reg .b16 %h<4>;\ncvt.rn.f16.f32 %h1, %f1;\ncvt.f32.f16 %f2, %h1;\nsub.f32 %f3, %f2, %f1;\n"
      "st.global.f32 [%rd2], %f3;";
  CHECK(CountOf(WithPrecision(body).ptx, "call __ops_debug_numeric_trace,") == 0);
  const InstrumentedModule module = WithPrecision(body, true);
  CHECK(CountOf(module.ptx, "call __ops_debug_numeric_trace,") == 3);
  REQUIRE(module.numeric_sites.size() == 4);
  REQUIRE(module.numeric_sites[1].origins.size() == 1);
  CHECK(module.numeric_sites[1].origins[0].site.instruction == "cvt.rn.f16.f32 %h1, %f1;");
}

TEST_CASE("each value of a vector that is stored is tested; who made it is not") {
  const InstrumentedModule module = WithPrecision(
      "add.f32 %f3, %f1, %f2;\nsqrt.rn.f32 %f4, %f1;\nst.global.v2.f32 [%rd2], {%f3, %f4};");
  CHECK(module.numeric_sites.size() == 3);
  CHECK(InlineTests(module) == 2);
  CHECK(CountOf(module.ptx, "call __ops_debug_numeric,") == 4);
}

TEST_CASE("originals stay as they were") {
  const std::string body =
      kLoad + std::string("add.f32 %f3, %f1, %f2;\nst.global.f32 [%rd2], %f3;");
  const InstrumentedModule module = WithPrecision(body.substr(sizeof kLoad - 1));
  const std::string original = module.ptx.substr(0, module.ptx.find("k$ops_debug"));
  CHECK(CountOf(original.substr(original.find(".entry k(")), "odsn") == 0);
}

TEST_CASE("a sum over a loop is an accumulator, one outside is not") {
  const auto sums = AccumulatorsOf(
      "mov.f32 %f4, 0f00000000;\nLOOP:\nfma.rn.f32 %f5, %f1, %f2, %f4;\nadd.f32 %f6, %f7, %f5;\n"
      "mov.f32 %f4, %f6;\nsetp.lt.u32 %p1, %r2, %r1;\n@%p1 bra LOOP;\nadd.f32 %f8, %f4, %f1;");
  REQUIRE(sums.size() == 2);
  CHECK(sums.begin()->second.operand == 2);
  CHECK_FALSE(sums.begin()->second.last);
  CHECK(sums.rbegin()->second.operand == 1);
  CHECK(sums.rbegin()->second.last);
}

TEST_CASE("a polynomial is no accumulation: its constant is added, not the sum") {
  CHECK(AccumulatorsOf("LOOP:\nfma.rn.f32 %f4, %f4, %f2, %f3;\nsetp.lt.u32 %p1, %r2, %r1;\n"
                       "@%p1 bra LOOP;")
            .empty());
}

TEST_CASE("constants that went through float are told from those meant for double") {
  CHECK(IsWidenedFloat(static_cast<double>(0.12f)));
  CHECK(IsWidenedFloat(static_cast<double>(1e-5f)));
  CHECK_FALSE(IsWidenedFloat(0.12));
  CHECK_FALSE(IsWidenedFloat(0.5));
  CHECK_FALSE(IsWidenedFloat(4096));
  CHECK_FALSE(IsWidenedFloat(3.14159265358979));
  CHECK_FALSE(
      IsWidenedFloat(static_cast<double>(3.14159265f)));  // nobody writes eight digits of it
}

TEST_CASE("a widened constant is a site of its own") {
  const InstrumentedModule module =
      WithPrecision(".reg .f64 %d<4>;\nmul.f64 %d1, %d2, 0d3FBEB851E0000000;\n");
  REQUIRE(module.kernels[0].precision.constants.size() == 1);
  const NumericSite& site = module.numeric_sites[module.kernels[0].precision.constants[0]];
  CHECK(site.constant_bits == 0x3df5c28f);
  CHECK(site.widened_bits == 0x3fbeb851e0000000);
}

}  // namespace ops_debug::shadow
