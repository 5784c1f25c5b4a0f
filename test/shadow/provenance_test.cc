// Which base the analysis finds for the address of the last instruction with an address operand.
#include "shadow/passes/provenance.h"

#include <catch2/catch.hpp>
#include <string>

#include "test/shadow/ptx_fixture.h"

namespace ops_debug::shadow {
namespace {

struct Analysed {
  ptx::Module module;
  Provenance provenance;
  Value address;
};

Analysed Analyse(const std::string& text) {
  ptx::Module module = ParseOrDie(text);
  const ptx::Function& function = *module.FindFunction("k");
  Provenance provenance(module, function);
  Value last;
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr || instruction->Has(".param")) continue;
    for (const ptx::Operand& operand : instruction->operands) {
      if (operand.IsAddress()) last = provenance.OfAddress(operand);
    }
  }
  return {std::move(module), std::move(provenance), last};
}

Value AddressIn(const std::string& body) { return Analyse(ModuleText(EntryText(body))).address; }

TEST_CASE(
    "pointer parameter plus scaled index keeps the parameter and the alignment of the terms") {
  const Value value = AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.s32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4+8];)");
  CHECK(value.origin == Origin::kParameter);
  CHECK(value.id == 0);
  CHECK(value.alignment_log2 == 2);
}

TEST_CASE("the offset of a parameter in the buffer names it") {
  CHECK(AddressIn("ld.param.u64 %rd1, [k_q];\nld.global.f32 %f1, [%rd1];").id == 16);
}

TEST_CASE("a 64-bit integer parameter that is scaled is a number") {
  const Value value = AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd2, [k_q];
    shl.b64 %rd3, %rd2, 2;
    add.s64 %rd4, %rd1, %rd3;
    st.global.f32 [%rd4], %f1;)");
  CHECK(value.origin == Origin::kParameter);
  CHECK(value.id == 0);
}

TEST_CASE("two parameters with coefficient one are ambiguous") {
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd2, [k_q];
    add.s64 %rd4, %rd1, %rd2;
    st.global.u8 [%rd4], %r1;)")
            .origin == Origin::kUnknown);
}

TEST_CASE("a pointer that goes round a loop keeps its parameter but no constant offset") {
  const Value value = AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    mov.u64 %rd2, %rd1;
    loop:
    add.s64 %rd2, %rd2, 16;
    ld.global.f32 %f1, [%rd2];
    setp.lt.u64 %p1, %rd2, 4096;
    @%p1 bra loop;)");
  CHECK(value.origin == Origin::kParameter);
  CHECK_FALSE(value.exact);
  CHECK(value.alignment_log2 == 4);
}

TEST_CASE("selecting between two parameters is unknown, between two offsets of one is that one") {
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd2, [k_q];
    selp.b64 %rd3, %rd1, %rd2, %p1;
    ld.global.f32 %f1, [%rd3];)")
            .origin == Origin::kUnknown);
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    add.s64 %rd2, %rd1, 4;
    selp.b64 %rd3, %rd1, %rd2, %p1;
    ld.global.f32 %f1, [%rd3];)")
            .origin == Origin::kParameter);
}

TEST_CASE("a pointer loaded from memory is unknown") {
  CHECK(AddressIn(
            "ld.param.u64 %rd1, [k_p];\nld.global.u64 %rd2, [%rd1];\nld.global.f32 %f1, [%rd2];")
            .origin == Origin::kUnknown);
}

TEST_CASE("a scaled index loaded from memory is a number") {
  const Value value = AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    ld.global.u64 %rd2, [%rd1];
    shl.b64 %rd3, %rd2, 3;
    ld.param.u64 %rd4, [k_q];
    add.s64 %rd5, %rd4, %rd3;
    ld.global.f32 %f1, [%rd5];)");
  CHECK(value.origin == Origin::kParameter);
  CHECK(value.id == 16);
  CHECK(value.alignment_log2 == 3);
}

TEST_CASE("bits of a pointer stay opaque even when scaled back") {
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    shr.u64 %rd2, %rd1, 4;
    shl.b64 %rd3, %rd2, 4;
    ld.global.f32 %f1, [%rd3];)")
            .origin == Origin::kOpaque);
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    mov.b64 {%r1, %r2}, %rd1;
    mov.b64 %rd3, {%r1, %r2};
    ld.global.f32 %f1, [%rd3];)")
            .origin == Origin::kOpaque);
}

TEST_CASE("a difference of pointers is no number: base plus it may be another pointer") {
  CHECK(AddressIn(R"(
    ld.param.u64 %rd1, [k_p];
    ld.param.u64 %rd2, [k_q];
    sub.s64 %rd3, %rd2, %rd1;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];)")
            .origin == Origin::kOpaque);
}

TEST_CASE("a shared array is found through 32-bit arithmetic") {
  const Analysed result = Analyse(ModuleText(EntryText(R"(
    .shared .align 4 .b8 tile[128];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, tile;
    add.s32 %r4, %r3, %r2;
    st.shared.f32 [%r4], %f1;)")));
  REQUIRE(result.address.origin == Origin::kSymbol);
  CHECK(result.provenance.symbols()[result.address.id].name == "tile");
  CHECK(result.provenance.symbols()[result.address.id].size_bytes == 128);
}

TEST_CASE("dynamic shared memory has no static size") {
  const Analysed result =
      Analyse(ModuleText(".extern .shared .align 16 .b8 buffer[];\n" +
                         EntryText("mov.u32 %r1, buffer;\nst.shared.f32 [%r1], %f1;")));
  REQUIRE(result.address.origin == Origin::kSymbol);
  CHECK(result.provenance.symbols()[result.address.id].dynamic_shared);
}

constexpr char kTwoLocalArrays[] = R"(
    .local .align 16 .b8 __local_depot0[96];
    .reg .b64 %SP, %SPL;
    mov.u64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    add.u64 %rd1, %SPL, 0;
    add.u64 %rd2, %SPL, 64;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.local.u32 [%rd4], %r2;
    add.s64 %rd5, %rd1, %rd3;)";

TEST_CASE("arrays of one depot have bounds of their own") {
  const Analysed result =
      Analyse(ModuleText(EntryText(std::string(kTwoLocalArrays) + "\nst.local.u32 [%rd5], %r2;")));
  REQUIRE(result.address.origin == Origin::kLocalRegion);
  CHECK(result.address.region == 0);
  CHECK(result.provenance.LocalRegionBytes(result.address.id, 0) == 64);
  CHECK(result.provenance.LocalRegionBytes(result.address.id, 64) == 32);
}

TEST_CASE(
    "an access that is known to reach across an array's start proves that no array starts there") {
  const Analysed result = Analyse(ModuleText(EntryText(
      std::string(kTwoLocalArrays) + "\nst.local.u32 [%rd1+64], %r2;\nst.local.u32 [%rd5], %r2;")));
  CHECK(result.provenance.LocalRegionBytes(result.address.id, 0) == 96);
}

}  // namespace
}  // namespace ops_debug::shadow
