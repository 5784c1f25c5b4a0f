#include "runner/scalar_bytes.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace ops_debug::runner {
namespace {

TEST_CASE("conversion to half rounds to nearest even") {
  const auto [value, bits] = GENERATE(table<float, int>({
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3c00},
      {-2.0f, 0xc000},
      {65504.0f, 0x7bff},
      {65519.0f, 0x7bff},
      {65520.0f, 0x7c00},
      {1.0f + 0x1p-11f, 0x3c00},      // a tie goes to the even neighbour below
      {1.0f + 3 * 0x1p-11f, 0x3c02},  // and above
      {2.0f - 0x1p-12f, 0x4000},      // carries into the exponent
      {0x1p-14f, 0x0400},             // smallest normal
      {0x1p-24f, 0x0001},             // smallest subnormal
      {0x1p-25f, 0x0000},             // a tie to even zero
      {0x1.8p-25f, 0x0001},
      {0x1p-14f - 0x1p-26f, 0x0400},  // rounds up into the normals
      {INFINITY, 0x7c00},
  }));
  CAPTURE(value);
  CHECK(FloatToHalf(value) == bits);
}

TEST_CASE("conversion to bfloat16 rounds to nearest even") {
  CHECK(FloatToBfloat16(1.0f) == 0x3f80);
  CHECK(FloatToBfloat16(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(FloatToBfloat16(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(FloatToBfloat16(std::numeric_limits<float>::max()) == 0x7f80);
}

TEST_CASE("NaN stays NaN") {
  CHECK((FloatToHalf(NAN) & 0x7fff) > 0x7c00);
  CHECK((FloatToBfloat16(NAN) & 0x7fff) > 0x7f80);
}

TEST_CASE("integers must fit their type") {
  CHECK(IntegerBytes(ScalarType::kS32, -1)->size() == 4);
  CHECK(IntegerBytes(ScalarType::kU8, 255).ok());
  CHECK_FALSE(IntegerBytes(ScalarType::kU8, 256).ok());
  CHECK_FALSE(IntegerBytes(ScalarType::kU32, -1).ok());
  CHECK_FALSE(IntegerBytes(ScalarType::kU64, -1).ok());
  CHECK(IntegerBytes(ScalarType::kS32, 3000000000).status().message() ==
        "3000000000 does not fit into its 32-bit type");
}

TEST_CASE("structs are given as zeros or as bytes") {
  CHECK(*OpaqueBytes("zeros", 3) == std::vector<std::byte>(3, std::byte{0}));
  CHECK(*OpaqueBytes("hex:0aff", 2) == std::vector<std::byte>{std::byte{0x0a}, std::byte{0xff}});
  CHECK_FALSE(OpaqueBytes("hex:0a", 2).ok());
  CHECK_FALSE(OpaqueBytes("hex:0g", 1).ok());
  CHECK_FALSE(OpaqueBytes("17", 2).ok());
}

}  // namespace
}  // namespace ops_debug::runner
