// Parts of `ops-debug validate` whose answers can be written down: types, contents, expressions,
// words.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "analysis/validate/break_point.h"
#include "analysis/validate/gradient_hints.h"
#include "analysis/validate/input_contents.h"
#include "analysis/validate/operator_book.h"
#include "analysis/validate/options.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

using proto::DType;

double Stored(DType dtype, double value) {
  return ElementValues(TensorOf("x", dtype, {1}, {value}))[0];
}

TEST_CASE("every value of a narrow type survives") {
  for (const DType dtype :
       {DType::kFloat16, DType::kBfloat16, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    const uint32_t bytes = proto::ElementBytes(dtype);
    for (uint32_t bits = 0; bits < 1u << (8 * bytes); ++bits) {
      proto::Tensor tensor = TensorOf("x", dtype, {1}, {0});
      std::memcpy(const_cast<std::byte*>(tensor.data), &bits, bytes);
      const double value = ElementValues(tensor)[0];
      if (std::isnan(value)) continue;
      uint32_t again = 0;
      const proto::Tensor copy = TensorOf("x", dtype, {1}, {value});
      std::memcpy(&again, copy.data, bytes);
      if (again != bits) FAIL(proto::Name(dtype) << ": " << bits << " became " << again);
    }
  }
  SUCCEED();
}

TEST_CASE("conversions round to nearest even and overflow as the type does") {
  CHECK(Stored(DType::kFloat16, 1 + 1.0 / 2048) == 1);
  CHECK(Stored(DType::kFloat16, 1 + 3.0 / 2048) == 1 + 4.0 / 2048);
  CHECK(Stored(DType::kFloat16, 65519) == 65504);
  CHECK(std::isinf(Stored(DType::kFloat16, 65520)));
  CHECK(Stored(DType::kFloat16, std::ldexp(1.0, -24)) == std::ldexp(1.0, -24));
  CHECK(Stored(DType::kFloat16, std::ldexp(1.0, -25)) == 0);
  CHECK(Stored(DType::kFloat8E4M3, 448) == 448);
  CHECK(std::isnan(Stored(DType::kFloat8E4M3, 480)));
  CHECK(std::isinf(Stored(DType::kFloat8E5M2, -65536)));
  CHECK(Stored(DType::kInt8, 300) == 127);
  CHECK(LargestFinite(DType::kBfloat16) == Approx(3.3895314e38));
}

TEST_CASE("strides are followed") {
  proto::Tensor tensor = TensorOf("x", DType::kFloat32, {2, 3}, {0, 1, 2, 3, 4, 5});
  tensor.shape = {3, 2};
  tensor.strides = {1, 3};
  CHECK(ElementValues(tensor) == std::vector<double>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("contents keep their promise") {
  InputPlan input{.name = "x", .shape = {1000}, .dtype = DType::kFloat32};
  const auto made = [&](const char* contents) {
    input.contents = contents;
    return MakeContents(input, 0, 0);
  };
  for (const double value : made("denormal")) {
    CHECK(std::fabs(value) < SmallestNormal(DType::kFloat32));
  }
  for (const double value : made("index:7")) CHECK((value >= 0 && value <= 6));
  for (const double value : made("positive")) CHECK((value > 0 && value <= 1));
  int nans = 0;
  for (const double value : made("nan")) nans += std::isnan(value) ? 1 : 0;
  CHECK(nans == 16);
  CHECK(made("2.5") == std::vector<double>(1000, 2.5));
  CHECK(made("random") == made("random"));
  CHECK_FALSE(IsContents("rnadom"));
}

TEST_CASE("expressions") {
  ExpressionNames names;
  names.shapes["x"] = {4, 6};
  names.numbers["groups"] = 3;
  CHECK(EvaluateExpression("x.dim1 / groups + 2 * (x.dim0 - 1)", names).value() == 8);
  CHECK(EvaluateExpression("x.size", names).value() == 24);
  for (const char* wrong : {"x.dim2", "y.dim0", "7 / 2", "(1", "1 +", "1 2", "x", "4 / (2 - 2)",
                            "9223372036854775807 + 1"}) {
    CHECK_FALSE(EvaluateExpression(wrong, names).ok());
  }
}

TEST_CASE("shapes of the command line") {
  std::vector<int64_t> shape;
  CHECK(ParseShape("1x32x224", &shape));
  CHECK(shape == std::vector<int64_t>{1, 32, 224});
  for (const char* wrong : {"", "x", "1x", "-1", "1,2", "99999999999x99999999999"}) {
    shape.clear();
    CHECK_FALSE(ParseShape(wrong, &shape));
  }
}

TEST_CASE("channels in words") {
  CHECK(ChannelsText({16, 17, 18, 19}) == "16-19");
  CHECK(ChannelsText({3, 19, 35}) == "every 16th from 3 (3, 19, ..., 35)");
  CHECK(ChannelsText({1, 5, 9, 10, 11}) == "1, 5, 9-11");
  CHECK(ChannelsText({7}) == "7");
}

TEST_CASE("a gradient that moved is no scale, one that is scaled did not move") {
  GradientValues moved{"x", {1, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 5}, {5, 0, 0, 0, 0, 0, 0, 0, 0}};
  REQUIRE(DisplacedHint(moved));
  CHECK(DisplacedHint(moved)->find("mass at (0, 2, 2) instead of (0, 0, 0)") != std::string::npos);
  CHECK_FALSE(FactorHint(moved));
  GradientValues scaled{"x", {4}, {2, 4, 6, -8}, {1, 2, 3, -4}};
  CHECK(FactorHint(scaled) == "grad.x is 2 times the truth everywhere: scale, not index map");
  CHECK_FALSE(DisplacedHint(scaled));
}

TEST_CASE("crosstalk names the direction") {
  Crosstalk crosstalk{.received = {{1, 0, 0}, {0.5, 1, 0}, {0, 0.25, 1}},
                      .possible = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
                      .scale = 1};
  const auto hint = CrosstalkHint("x", crosstalk);
  REQUIRE(hint);
  CHECK(
      hint->find("element of channel c-1 gets gradient of channel c (2 channels, first 1 -> 0)") !=
      std::string::npos);
  crosstalk.possible = crosstalk.received;
  CHECK_FALSE(CrosstalkHint("x", crosstalk));
}

}  // namespace
}  // namespace ops_debug::analysis
