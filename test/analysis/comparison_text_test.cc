// What a user reads of one comparison and of a sequence, and what a program reads.
#include "analysis/compare/comparison_text.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "analysis/compare/comparison_json.h"
#include "analysis/compare/report_json.h"
#include "analysis/compare/report_text.h"
#include "test/analysis/naive_comparison.h"

namespace ops_debug::analysis {
namespace {

// Channel 2 of 4 is off by one half.
Comparison WrongChannel() {
  std::vector<float> reference(2 * 4 * 30), candidate;
  for (size_t i = 0; i < reference.size(); ++i) {
    reference[i] = static_cast<float>((i * 37 + 11) % 101) / 16 - 3;
  }
  candidate = reference;
  for (size_t i = 0; i < candidate.size(); ++i) {
    if (i / 30 % 4 == 2) candidate[i] += 0.5f;
  }
  const proto::Tensor a = FloatTensor({2, 4, 30}, candidate);
  const proto::Tensor b = FloatTensor({2, 4, 30}, reference);
  Comparison comparison = NaiveComparison(a, b);
  comparison.name = "out";
  comparison.histograms.ulps[0] = 180;
  comparison.histograms.ulps[20] = 60;
  comparison.verdict.passing_atol = 0.5;
  FindStructure(a, b, &comparison);
  return comparison;
}

Comparison Equal() {
  const proto::Tensor tensor = FloatTensor({4}, {1, 2, 3, 4});
  Comparison comparison = NaiveComparison(tensor, tensor);
  comparison.verdict.text = "all 4 elements are equal";
  return comparison;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ComparedPair PairOf(const std::string& name, Comparison comparison) {
  return {name, name, name, std::move(comparison)};
}

DiffReport LayersOf(int64_t count, int64_t first_wrong) {
  DiffReport report{"run-a against run-b", "run-a", "run-b", {}, first_wrong, {}, first_wrong < 0};
  for (int64_t i = 0; i < count; ++i) {
    const bool wrong = first_wrong >= 0 && i >= first_wrong;
    report.pairs.push_back(PairOf("layer" + std::to_string(i), wrong ? WrongChannel() : Equal()));
  }
  return report;
}

}  // namespace

TEST_CASE("A failing comparison begins with the verdict and stays short") {
  const std::string text = ComparisonText(WrongChannel());
  const auto lines = Lines(text);
  CHECK(lines[0] == "FAIL  out: 60 elements fail");
  CHECK(lines[1] == "  tensor        2 x 4 x 30, float32");
  CHECK(lines.size() <= 40);
  for (const std::string& line : lines) CHECK(line.size() <= 130);
}

TEST_CASE(
    "A failing comparison names pattern, axis, worst elements and the tolerance that passes") {
  const std::string text = ComparisonText(WrongChannel());
  INFO(text);
  CHECK(Has(text, "  pattern       index 2 of dim 1 is wrong\n"));
  CHECK(Has(text, "100 % of the squared error in 25 % of the elements; confidence 1.00"));
  CHECK(Has(text, "where it fails the candidate is the reference + 0.5"));
  CHECK(Has(text, "of the error's variation dim 1 explains 100 %"));
  CHECK(Has(text, "rank-1 terms"));
  CHECK(Has(text, "(0, 2, "));
  CHECK(Has(text, "passes with   atol 0.5 (with rtol 1.3e-06)"));
}

TEST_CASE("The verdict's own word is not said twice") {
  Comparison comparison = WrongChannel();
  comparison.verdict.text = "fails: 60 of 240 elements";
  CHECK(Lines(ComparisonText(comparison))[0] == "FAIL  out: 60 of 240 elements");
}

TEST_CASE("The histogram has one line per range that occurs") {
  const std::string text = ComparisonText(WrongChannel());
  CHECK(Has(text, "equal                      180      75 %  ##############################\n"));
  CHECK(Has(text, "2^16..2^32                  60      25 %  ##########\n"));
  CHECK(!Has(text, "2..3"));
}

TEST_CASE("No tolerance passes where one side is not finite") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Comparison comparison =
      NaiveComparison(FloatTensor({4}, {1, nan, 3, 4}), FloatTensor({4}, {1, 2, 3, 4}));
  const std::string text = ComparisonText(comparison);
  CHECK(
      Has(text, "  NaN           1 in the candidate, 0 in the reference, 0 at the same places\n"));
  CHECK(Has(text, "passes with   no tolerance: elements are not finite on one side"));
}

TEST_CASE("Elements that fail only because the reference is tiny are counted") {
  Comparison comparison = WrongChannel();
  CHECK(!Has(ComparisonText(comparison), "small values"));
  comparison.verdict.small_value = 0.001;
  comparison.verdict.failed_without_small = 58;
  CHECK(Has(ComparisonText(comparison),
            "small values  2 elements fail only because |reference| < 0.001"));
}

TEST_CASE("What passes is told in three lines") {
  const auto lines = Lines(ComparisonText(Equal()));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "pass  all 4 elements are equal");
  CHECK(lines[2] == "  whole         equal bit for bit");
}

TEST_CASE("Shapes that differ say only so") {
  Comparison comparison;
  comparison.verdict.outcome = Outcome::kShapeMismatch;
  comparison.verdict.text = "shape 2 x 3 against 3 x 2";
  const auto lines = Lines(ComparisonText(comparison));
  CHECK(lines[0] == "SHAPE  shape 2 x 3 against 3 x 2");
  CHECK(lines.size() == 2);
}

TEST_CASE("Control characters of names do not reach the terminal") {
  Comparison comparison = Equal();
  comparison.name = "a\033[31mb";
  CHECK(!Has(ComparisonText(comparison), "\033"));
  CHECK(Has(ComparisonText(comparison), "a?[31mb"));
}

TEST_CASE("The heat map shows each tile's largest error") {
  Comparison comparison = WrongChannel();
  comparison.heat = {2,
                     3,
                     1,
                     1,
                     {2, 3},
                     "dim 0 x dim 1",
                     {0, 1, 0.05, 0, 1e-20, std::numeric_limits<double>::infinity()}};
  TextOptions options;
  options.heat = true;
  const std::string text = ComparisonText(comparison, options);
  CHECK(Has(text, "| @%|\n"));
  CHECK(Has(text, "| .!|\n"));
  CHECK(!Has(ComparisonText(comparison), "| @%|"));
}

TEST_CASE("A sequence names the first divergence and marks it in the table") {
  const std::string text = DiffText(LayersOf(6, 4));
  INFO(text);
  const auto lines = Lines(text);
  CHECK(lines[0] ==
        "FAIL  run-a against run-b: 2 of 6 pairs differ; first divergence: layer4 (number 4)");
  const auto marked = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.ends_with("<- first");
  });
  REQUIRE(marked != lines.end());
  CHECK(Has(*marked, "layer4"));
  CHECK(Has(text, "first divergence: layer4\nFAIL  out: 60 elements fail"));
}

TEST_CASE("A long sequence is shortened around the first divergence") {
  DiffReport report = LayersOf(200, -1);
  report.pairs[150].comparison = WrongChannel();
  report.first_divergence = 150;
  report.passes = false;
  const std::string text = DiffText(report);
  CHECK(Has(text, "layer150"));
  CHECK(Has(text, "layer146"));
  CHECK(Has(text, "(140 more pairs, all pass)"));
  CHECK(!Has(text, "layer100"));
  CHECK(Lines(text).size() < 70);
}

TEST_CASE("A tensor that is missing on one side is a row of its own") {
  DiffReport report = LayersOf(2, -1);
  report.pairs.push_back({"extra", "", "extra", {}});
  report.passes = false;
  report.first_divergence = 2;
  const std::string text = DiffText(report);
  CHECK(Has(text, "MISSING  extra"));
  CHECK(Has(text, "not in the candidate"));
}

TEST_CASE("A sequence that passes says so in its first line") {
  CHECK(Lines(DiffText(LayersOf(3, -1)))[0] == "pass  run-a against run-b: all 3 pairs pass");
}

TEST_CASE("JSON holds the data of the report") {
  const nlohmann::json json = nlohmann::json::parse(DiffJson(LayersOf(3, 1)));
  CHECK(json["schema"] == 1);
  CHECK(json["first_divergence"] == 1);
  CHECK(json["passes"] == false);
  REQUIRE(json["pairs"].size() == 3);
  const nlohmann::json& comparison = json["pairs"][1]["comparison"];
  CHECK(comparison["verdict"]["outcome"] == "fail");
  CHECK(comparison["verdict"]["passing_rtol"].is_null());
  CHECK(comparison["verdict"]["passing_atol"] == 0.5);
  CHECK(comparison["patterns"][0]["kind"] == "channel");
  CHECK(comparison["whole"]["failed"] == 60);
  CHECK(comparison["axes"][1]["channels"]["failed"] == nlohmann::json({0, 0, 60, 0}));
  CHECK(comparison["shape"] == nlohmann::json({2, 4, 30}));
}

TEST_CASE("JSON of a passing report has no first divergence") {
  CHECK(nlohmann::json::parse(DiffJson(LayersOf(1, -1)))["first_divergence"].is_null());
}

TEST_CASE("JSON names a side that is missing") {
  DiffReport report = LayersOf(1, -1);
  report.pairs[0].reference.clear();
  const nlohmann::json json = nlohmann::json::parse(DiffJson(report));
  CHECK(json["pairs"][0]["missing"] == "reference");
  CHECK(!json["pairs"][0].contains("comparison"));
}

TEST_CASE("JSON writes infinities and NaN as words") {
  Comparison comparison = WrongChannel();
  comparison.whole.sqnr_db = std::numeric_limits<double>::infinity();
  comparison.worst[0].candidate = std::numeric_limits<double>::quiet_NaN();
  comparison.worst[0].reference = -std::numeric_limits<double>::infinity();
  const auto json = ComparisonJson(comparison);
  CHECK(json["whole"]["sqnr_db"] == "inf");
  CHECK(json["worst"][0]["candidate"] == "nan");
  CHECK(json["worst"][0]["reference"] == "-inf");
}

TEST_CASE("JSON bounds long axes") {
  Comparison comparison = WrongChannel();
  comparison.axes[2].channels.assign(4096, Channel{0, 1, 0, 0.5, 1, 2});
  const auto json = ComparisonJson(comparison);
  CHECK(json["axes"][2]["channels"]["failed"].size() == 512);
  CHECK(json["axes"][2]["channels"]["failed"][0] == 8);
  CHECK(json["axes"][2]["bin"] == 8);
}

TEST_CASE("JSON of a name that is not UTF-8 is still JSON") {
  DiffReport report = LayersOf(1, -1);
  report.pairs[0].tag = "caf\xe9";
  CHECK(nlohmann::json::accept(DiffJson(report)));
}

}  // namespace ops_debug::analysis
