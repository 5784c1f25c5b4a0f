#include "runner/signature.h"

#include <catch2/catch.hpp>

#include "ptx/parser.h"

namespace ops_debug::runner {
namespace {

using Types = std::vector<std::string>;

TEST_CASE("parameter types are split at top-level commas only") {
  const auto [demangled, types] = GENERATE(table<const char*, Types>({
      {"k(float const*, int)", {"float const*", "int"}},
      {"void k<float, 4>(float const*, vec<float, 3>)", {"float const*", "vec<float, 3>"}},
      {"void k<&(foo(int))>(float const*)", {"float const*"}},
      {"k(float const (*) [4], void (*)(int, int))", {"float const (*) [4]", "void (*)(int, int)"}},
      {"(anonymous namespace)::k(float*)", {"float*"}},
      {"k()", {}},
  }));
  CAPTURE(demangled);
  const std::optional<Types> result = ParameterTypesOf(demangled);
  REQUIRE(result.has_value());
  CHECK(*result == types);
}

TEST_CASE("a name without a parameter list has no types") {
  CHECK_FALSE(ParameterTypesOf("extern_c_kernel").has_value());
}

TEST_CASE("an unmangled name that is a type code stays as it is") {
  CHECK(Demangle("c") == "c");
  CHECK(Demangle("_Z1kPf") == "k(float*)");
}

TEST_CASE("the plain name has no scope, template arguments or parameters") {
  const auto [demangled, name] = GENERATE(table<const char*, const char*>({
      {"k(float*)", "k"},
      {"void ns::inner::k<float, 4>(float const*)", "k"},
      {"(anonymous namespace)::k(float*)", "k"},
      {"void k<&(foo(int))>(float const*)", "k"},
      {"void k<vec<float, 3>>(vec<float, 3>*)", "k"},
      {"extern_c_kernel", "extern_c_kernel"},
  }));
  CHECK(UnqualifiedName(demangled) == name);
}

std::vector<Entry> Read(const std::string& body) {
  ptx::Result<ptx::Module> module =
      ptx::Parse(".version 7.8\n.target sm_80\n.address_size 64\n" + body);
  REQUIRE(module.ok());
  return ReadEntries(*module);
}

TEST_CASE("an entry has the types of its mangled name and the sizes of its PTX") {
  const std::vector<Entry> entries = Read(R"(
.visible .entry _Z1kPKf6float4i(.param .u64 p0, .param .align 16 .b8 p1[16], .param .u32 p2)
.maxntid 128, 2, 1
{
  .reg .b32 %r<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.y;
  ret;
})");
  REQUIRE(entries.size() == 1);
  const Entry& entry = entries[0];
  CHECK(entry.name == "k");
  CHECK(entry.types_known);
  REQUIRE(entry.parameters.size() == 3);
  CHECK(entry.parameters[0].type.pointee_const);
  CHECK(entry.parameters[1].type.element.ToString() == "f32x4");
  CHECK(entry.parameters[1].size_bytes == 16);
  CHECK(entry.parameters[2].name == "arg2");
  CHECK(entry.maximum_block == Dimensions{128, 2, 1});
  CHECK_FALSE(entry.required_block.has_value());
  CHECK(entry.index_use.block[0]);
  CHECK(entry.index_use.threads_per_block[1]);
  CHECK_FALSE(entry.index_use.thread[0]);
}

TEST_CASE("an unmangled entry has only what PTX says") {
  const std::vector<Entry> entries = Read(R"(
.visible .entry plain(.param .u64 .ptr .global .align 4 p0, .param .u64 p1, .param .f32 p2, .param .u32 p3)
.reqntid 64
{
  ret;
})");
  REQUIRE(entries.size() == 1);
  const Entry& entry = entries[0];
  CHECK_FALSE(entry.types_known);
  CHECK(entry.parameters[0].type.kind == ParameterType::Kind::kUntypedPointer);
  CHECK(entry.parameters[1].type.kind == ParameterType::Kind::kOpaque);
  CHECK(entry.parameters[2].type.element.ToString() == "f32");
  CHECK(entry.parameters[3].type.element.ToString() == "u32");
  CHECK(entry.required_block == Dimensions{64, 1, 1});
}

TEST_CASE("special registers that a called function reads count for the entry") {
  const std::vector<Entry> entries = Read(R"(
.func helper() {
  .reg .b32 %r<2>;
  mov.u32 %r1, %tid.y;
  ret;
}
.visible .entry k() {
  call helper, ();
  ret;
})");
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].index_use.thread[1]);
}

}  // namespace
}  // namespace ops_debug::runner
