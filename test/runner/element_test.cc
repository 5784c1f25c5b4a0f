#include "runner/element.h"

#include <catch2/catch.hpp>

namespace ops_debug::runner {
namespace {

using Kind = ParameterType::Kind;

TEST_CASE("builtin scalars are known in every word order") {
  const auto [text, scalar] = GENERATE(table<const char*, ScalarType>({
      {"int", ScalarType::kS32},
      {"unsigned int", ScalarType::kU32},
      {"unsigned", ScalarType::kU32},
      {"long unsigned int", ScalarType::kU64},
      {"unsigned long long", ScalarType::kU64},
      {"const int", ScalarType::kS32},
      {"std::size_t", ScalarType::kU64},
      {"::std::int8_t", ScalarType::kS8},
      {"bool", ScalarType::kBool},
      {"__half", ScalarType::kF16},
      {"nv_bfloat16", ScalarType::kBf16},
      {"double", ScalarType::kF64},
  }));
  const ParameterType type = ParseType(text);
  CHECK(type.kind == Kind::kScalar);
  CHECK(type.element.scalar == scalar);
  CHECK(type.element.lanes == 1);
}

TEST_CASE("vector types have lanes") {
  CHECK(ParseType("float4").element.ToString() == "f32x4");
  CHECK(ParseType("float3 const*").element.SizeBytes() == 12);
  CHECK(ParseType("uchar2*").element.ToString() == "u8x2");
  CHECK(ParseType("__half2*").element.ToString() == "f16x2");
}

TEST_CASE("a pointer to const is an input in demangled and in source spelling") {
  const char* text = GENERATE("float const*", "const float*", "const float *",
                              "const float* __restrict__", "float const* const __restrict__");
  const ParameterType type = ParseType(text);
  CHECK(type.kind == Kind::kPointer);
  CHECK(type.pointee_const);
  CHECK(type.element.ToString() == "f32");
}

TEST_CASE("const of the pointer itself does not make an input") {
  const ParameterType type = ParseType("float* const __restrict__");
  CHECK(type.kind == Kind::kPointer);
  CHECK_FALSE(type.pointee_const);
}

TEST_CASE("pointers whose element is not known are untyped") {
  const char* text =
      GENERATE("void*", "ns::Node*", "float**", "float const (*) [4]", "vec<float, 3>*");
  CAPTURE(text);
  CHECK(ParseType(text).kind ==
        (std::string_view(text) == "float const (*) [4]" ? Kind::kOpaque : Kind::kUntypedPointer));
}

TEST_CASE("const is seen before a pointee that is not known") {
  CHECK(ParseType("void const*").pointee_const);
  CHECK(ParseType("float* const*").pointee_const);
  CHECK(ParseType("vec<float, 3> const*").pointee_const);
}

TEST_CASE("structs by value are opaque") {
  CHECK(ParseType("ns::Params").kind == Kind::kOpaque);
  CHECK(ParseType("vec<float, 3>").kind == Kind::kOpaque);
  CHECK(ParseType("std::vector").kind == Kind::kOpaque);
}

}  // namespace
}  // namespace ops_debug::runner
