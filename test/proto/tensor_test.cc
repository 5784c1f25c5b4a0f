// Types and shapes of tensors.
#include "proto/tensor.h"

#include <catch2/catch.hpp>

#include "proto/natural_order.h"

namespace ops_debug::proto {
namespace {

TEST_CASE("each type's own name is read as that type") {
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    DType parsed{};
    INFO(Name(dtype));
    REQUIRE(ParseDType(Name(dtype), &parsed));
    CHECK(parsed == dtype);
  }
}

TEST_CASE("types are known by the spellings of PyTorch, NumPy, safetensors and C") {
  const auto [text, dtype, bytes] =
      GENERATE(table<const char*, DType, uint32_t>({{"torch.float16", DType::kFloat16, 2},
                                                    {"half", DType::kFloat16, 2},
                                                    {"<f4", DType::kFloat32, 4},
                                                    {"=f8", DType::kFloat64, 8},
                                                    {"|i1", DType::kInt8, 1},
                                                    {"|b1", DType::kBool, 1},
                                                    {"<c16", DType::kComplex128, 16},
                                                    {"BF16", DType::kBfloat16, 2},
                                                    {"F8_E4M3", DType::kFloat8E4M3, 1},
                                                    {"float8_e5m2", DType::kFloat8E5M2, 1},
                                                    {"I8", DType::kInt8, 1},
                                                    {"C64", DType::kComplex64, 8},
                                                    {"double", DType::kFloat64, 8},
                                                    {"tf32", DType::kTf32, 4}}));
  DType parsed{};
  INFO(text);
  REQUIRE(ParseDType(text, &parsed));
  CHECK(parsed == dtype);
  CHECK(ElementBytes(parsed) == bytes);
}

TEST_CASE("what is no type, or stands in the other byte order, is not read as one") {
  const auto text = GENERATE("", "f", "<", "<V2", ">f4", "|O", "f8", "float128", "torch.");
  DType parsed{};
  INFO(text);
  CHECK_FALSE(ParseDType(text, &parsed));
}

TEST_CASE("a tensor without dimensions holds one element, one with a 0 none") {
  CHECK(Tensor{}.ElementCount() == 1);
  CHECK(Tensor{.shape = {3, 0, 2}}.ElementCount() == 0);
  CHECK(Tensor{.shape = {3, 4}}.ElementCount() == 12);
}

TEST_CASE("dense is row-major without gaps; dimensions of 1 do not count") {
  CHECK(Tensor{.shape = {2, 3}}.IsDense());
  CHECK(Tensor{.shape = {2, 3}, .strides = {3, 1}}.IsDense());
  CHECK(Tensor{.shape = {2, 1, 3}, .strides = {3, 99, 1}}.IsDense());
  CHECK(Tensor{.shape = {0, 3}, .strides = {7, 7}}.IsDense());
  CHECK_FALSE(Tensor{.shape = {2, 3}, .strides = {1, 2}}.IsDense());
  CHECK_FALSE(Tensor{.shape = {2, 3}, .strides = {4, 1}}.IsDense());
  CHECK_FALSE(Tensor{.shape = {2}, .strides = {0}}.IsDense());
}

TEST_CASE("names order as people count") {
  CHECK(NaturallyBefore("layer2", "layer10"));
  CHECK_FALSE(NaturallyBefore("layer10", "layer2"));
  CHECK(NaturallyBefore("layer2.a", "layer2.b"));
  CHECK(NaturallyBefore("a", "a1"));
  CHECK(NaturallyBefore("9", "10"));
  CHECK(NaturallyBefore("18446744073709551616", "18446744073709551617"));
  CHECK_FALSE(NaturallyBefore("same1", "same1"));
  CHECK(NaturallyBefore("x01", "x1") != NaturallyBefore("x1", "x01"));
}

}  // namespace
}  // namespace ops_debug::proto
