// Index arithmetic that may wrap: which of it is in the slice of an address, and what the twin
// gets.
#include <catch2/catch.hpp>
#include <string>

#include "shadow/passes/index_slices.h"
#include "shadow/passes/instrument.h"
#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

constexpr char kLoads[] = R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd9, [k_q];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [k_n];
    ld.global.u32 %r2, [%rd9];
)";
// The element of %rd2 that %r9 says, as a signed or unsigned number.
constexpr char kSigned[] = "mul.wide.s32 %rd3, %r9, 4;\nadd.s64 %rd4, %rd2, %rd3;\n";
constexpr char kUnsigned[] = "mul.wide.u32 %rd3, %r9, 4;\nadd.s64 %rd4, %rd2, %rd3;\n";
constexpr char kAccess[] = "st.global.u32 [%rd4+8], %r1;\n";

struct Slices {
  explicit Slices(const std::string& body)
      : module(ParseOrDie(ModuleText(EntryText(kLoads + body)))),
        slices(*module.FindFunction("k")) {}
  ptx::Module module;
  IndexSlices slices;
};

size_t CheckedAccesses(const std::string& body) { return Slices(body).slices.accesses().size(); }

InstrumentedModule WithIndexes(const std::string& body) {
  auto result = Instrument(ModuleText(EntryText(kLoads + body)), Rewrite::kMemoryChecks,
                           Checks{.memory = false, .indexes = true});
  if (!result.ok()) throw std::runtime_error(result.error().ToString());
  return std::move(result).value();
}

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) count++;
  return count;
}

}  // namespace

TEST_CASE("arithmetic on its way to an address is checked at the access") {
  const std::string arithmetic =
      GENERATE("mul.lo.s32 %r9, %r1, %r2;\n", "mad.lo.s32 %r9, %r1, %r2, %r1;\n",
               "add.s32 %r9, %r1, %r2;\n", "sub.s32 %r9, %r1, %r2;\n", "shl.b32 %r9, %r1, 5;\n");
  CHECK(CheckedAccesses(arithmetic + kSigned + kAccess) == 1);
  CHECK(CheckedAccesses(arithmetic + kSigned) == 0);  // an address that nobody uses
}

TEST_CASE("the widening tells whether the index is signed") {
  const std::string arithmetic = "mul.lo.s32 %r9, %r1, %r2;\n";
  CHECK(Slices(arithmetic + kSigned + kAccess).slices.widenings()[0].is_signed);
  CHECK_FALSE(Slices(arithmetic + kUnsigned + kAccess).slices.widenings()[0].is_signed);
  const std::string converted =
      "cvt.s64.s32 %rd5, %r9;\nshl.b64 %rd3, %rd5, 2;\nadd.s64 %rd4, %rd2, %rd3;\n";
  CHECK(Slices(arithmetic + converted + kAccess).slices.widenings()[0].is_signed);
}

TEST_CASE("an index that nothing was computed with cannot wrap") {
  CHECK(CheckedAccesses(std::string("mov.u32 %r9, %tid.x;\n") + kSigned + kAccess) == 0);
  CHECK(CheckedAccesses(std::string("mov.b32 %r9, %r2;\n") + kSigned + kAccess) == 0);
}

TEST_CASE("intervals prove small arithmetic") {
  const std::string small =
      "mov.u32 %r3, %tid.x;\nmov.u32 %r4, %laneid;\nmad.lo.s32 %r9, %r3, 32, %r4;\n";
  CHECK(CheckedAccesses(small + kSigned + kAccess) == 0);
  const std::string large =
      "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmul.lo.s32 %r9, %r3, %r4;\n";
  CHECK(CheckedAccesses(large + kSigned + kAccess) == 1);
}

TEST_CASE("what takes bits apart cuts the slice") {
  const std::string cut =
      GENERATE("and.b32 %r9, %r5, 255;\n", "shr.u32 %r9, %r5, 20;\n", "xor.b32 %r9, %r5, %r2;\n",
               "rem.u32 %r9, %r5, %r2;\n", "div.u32 %r9, %r5, %r2;\n");
  CHECK(CheckedAccesses("mul.lo.s32 %r5, %r2, -1640531535;\n" + cut + kUnsigned + kAccess) == 0);
}

TEST_CASE("a remainder as compilers write it is a leaf") {
  // %r5 % 100, %r5 % 8
  const std::string by_product =
      "mul.wide.u32 %rd5, %r5, 1374389535;\nshr.u64 %rd6, %rd5, 37;\ncvt.u32.u64 %r6, %rd6;\n"
      "mul.lo.s32 %r7, %r6, 100;\nsub.s32 %r9, %r5, %r7;\n";
  const std::string by_mask =
      "shr.s32 %r6, %r5, 31;\nshr.u32 %r7, %r6, 29;\nadd.s32 %r8, %r5, %r7;\nand.b32 %r10, %r8, "
      "-8;\n"
      "sub.s32 %r9, %r5, %r10;\n";
  CHECK(CheckedAccesses("mul.lo.s32 %r5, %r2, 1664525;\n" + by_product + kUnsigned + kAccess) == 0);
  CHECK(CheckedAccesses("mul.lo.s32 %r5, %r2, 1664525;\n" + by_mask + kSigned + kAccess) == 0);
}

TEST_CASE("a register of a loop is kept up by all its definitions") {
  const Slices loop(std::string("mov.u32 %r9, %tid.x;\nLOOP:\n") + kSigned + kAccess +
                    "add.s32 %r9, %r9, %r2;\nsetp.lt.s32 %p1, %r9, %r1;\n@%p1 bra LOOP;\n");
  CHECK(loop.slices.accesses().size() == 1);
  CHECK(loop.slices.registers().size() == 1);
  const InstrumentedModule module =
      WithIndexes(std::string("mov.u32 %r9, %tid.x;\nLOOP:\n") + kSigned + kAccess +
                  "add.s32 %r9, %r9, %r2;\nsetp.lt.s32 %p1, %r9, %r1;\n@%p1 bra LOOP;\n");
  const std::string exact = "%odsx" + std::to_string(*loop.slices.registers().begin());
  CHECK(Count(module.ptx, "cvt.s64.s32 " + exact + ", %r9;") == 1);
  CHECK(Count(module.ptx, "add.s64 " + exact + ", " + exact + ", ") == 1);
}

TEST_CASE("an access tests an index once in a block, and under its guard") {
  const std::string arithmetic = std::string("mul.lo.s32 %r9, %r1, %r2;\n") + kSigned;
  const InstrumentedModule twice = WithIndexes(arithmetic + kAccess + kAccess);
  CHECK(Count(twice.ptx, "call __ops_debug_numeric_report") == 1);
  const InstrumentedModule guarded =
      WithIndexes("setp.lt.s32 %p1, %r1, 5;\n" + arithmetic + "@%p1 " + kAccess);
  CHECK(Count(guarded.ptx, "and.pred %odsxp, %odsxp, %p1;") == 1);
}

TEST_CASE("the site is the access, its origin the arithmetic") {
  const InstrumentedModule module = WithIndexes(
      std::string("mad.lo.s32 %r5, %r1, %r2, %r1;\nadd.s32 %r9, %r5, 3;\n") + kSigned + kAccess);
  REQUIRE(module.numeric_sites.size() == 1);
  const NumericSite& site = module.numeric_sites[0];
  CHECK(site.result_type == "s32");
  CHECK(site.site.instruction == "st.global.u32 [%rd4+8], %r1;");
  REQUIRE(site.origins.size() == 1);
  CHECK(site.origins[0].site.instruction == "mad.lo.s32 %r5, %r1, %r2, %r1;");
}

TEST_CASE("kernels without such arithmetic stay as they were") {
  const InstrumentedModule module =
      WithIndexes(std::string("mov.u32 %r9, %tid.x;\n") + kSigned + kAccess);
  CHECK(Count(module.ptx, "%odsx") == 0);
  CHECK(module.numeric_sites.empty());
}

}  // namespace ops_debug::shadow
