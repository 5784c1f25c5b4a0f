// Structure as the pass over memory and the search for patterns give it together.
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "analysis/compare/compare.h"
#include "analysis/compare/comparison_text.h"
#include "analysis/compare/error_structure.h"
#include "test/analysis/naive_comparison.h"

namespace ops_debug::analysis {
namespace {

std::vector<float> Normal(size_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

Comparison Compared(const std::vector<int64_t>& shape, const std::vector<float>& candidate,
                    const std::vector<float>& reference) {
  const proto::Tensor a = FloatTensor(shape, candidate), b = FloatTensor(shape, reference);
  Comparison comparison = Compare(a, b, {});
  FindStructure(a, b, &comparison);
  return comparison;
}

std::string FirstText(const Comparison& comparison) {
  return comparison.patterns.empty() ? "" : comparison.patterns[0].text;
}

}  // namespace

TEST_CASE("Compared: a wrong channel") {
  const std::vector<float> reference = Normal(2 * 32 * 20 * 20);
  std::vector<float> candidate = reference;
  for (size_t i = 0; i < candidate.size(); ++i) {
    if (i / 400 % 32 == 16) candidate[i] *= 1.5f;
  }
  const Comparison comparison = Compared({2, 32, 20, 20}, candidate, reference);
  CHECK(FirstText(comparison) == "index 16 of dim 1 is wrong");
  REQUIRE(comparison.patterns.size() == 2);
  CHECK(comparison.patterns[1].text == "where it fails the candidate is 1.5 times the reference");
  REQUIRE(!comparison.terms.empty());
  INFO(ComparisonText(comparison));
  CHECK(ComparisonText(comparison).starts_with("FAIL  "));
}

TEST_CASE("Compared: a run of a long axis") {
  const std::vector<float> reference = Normal(300000);
  std::vector<float> candidate = reference;
  for (size_t i = 123456; i < 234567; ++i) candidate[i] = 0;
  const Comparison comparison = Compared({300000}, candidate, reference);
  CHECK(FirstText(comparison) == "indices 123456 to 234566 of dim 0 are wrong");
}

TEST_CASE("Compared: a lane of a long axis") {
  const std::vector<float> reference = Normal(300000);
  std::vector<float> candidate = reference;
  for (size_t i = 7; i < candidate.size(); i += 32) candidate[i] += 1;
  const Comparison comparison = Compared({300000}, candidate, reference);
  CHECK(FirstText(comparison) == "lane 7 of each 32 indices of dim 0: the same lanes of each warp");
}

TEST_CASE("Compared: a constant factor") {
  const std::vector<float> reference = Normal(64 * 48);
  std::vector<float> candidate = reference;
  for (float& value : candidate) value *= 48;
  const Comparison comparison = Compared({64, 48}, candidate, reference);
  CHECK(FirstText(comparison) == "the candidate is 48 (48, the size of dim 1) times the reference");
}

TEST_CASE("Compared: NaN in rows that nobody wrote") {
  const std::vector<float> reference = Normal(64 * 48);
  std::vector<float> candidate = reference;
  for (size_t i = 50 * 48; i < candidate.size(); ++i) {
    candidate[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const Comparison comparison = Compared({64, 48}, candidate, reference);
  CHECK(FirstText(comparison) == "dim 0 is wrong from index 50 on (14 of 64)");
  REQUIRE(comparison.patterns.size() == 2);
  CHECK(comparison.patterns[1].kind == "not-finite");
}

TEST_CASE("Compared: random errors have no pattern") {
  const std::vector<float> reference = Normal(64 * 48);
  std::vector<float> candidate = reference, noise = Normal(2 * 64 * 48);
  for (size_t i = 0; i < candidate.size(); ++i) candidate[i] += 0.1f * noise[candidate.size() + i];
  const Comparison comparison = Compared({64, 48}, candidate, reference);
  CHECK(comparison.whole.failed > 3000);
  CHECK(comparison.patterns.empty());
}

}  // namespace ops_debug::analysis
