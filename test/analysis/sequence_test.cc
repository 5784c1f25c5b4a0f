// A sequence of pairs and what is concluded from it.
#include "analysis/compare/sequence.h"

#include <catch2/catch.hpp>
#include <limits>

namespace ops_debug::analysis {
namespace {

using Catch::Matchers::Contains;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A set of one-dimensional float32 tensors that owns its values.
class Set {
 public:
  Set(const std::string& path, std::vector<std::pair<std::string, std::vector<float>>> tensors)
      : values_(std::move(tensors)) {
    set_.path = path;
    for (const auto& [name, values] : values_) {
      set_.tensors.push_back({.name = name,
                              .shape = {static_cast<int64_t>(values.size())},
                              .data = reinterpret_cast<const std::byte*>(values.data())});
    }
  }
  proto::TensorSet& get() { return set_; }

 private:
  std::vector<std::pair<std::string, std::vector<float>>> values_;
  proto::TensorSet set_;
};

std::string Remarks(const DiffReport& report) {
  std::string text;
  for (const std::string& remark : report.remarks) text += remark + '\n';
  return text;
}

TEST_CASE("equal sets pass without a divergence or a remark") {
  Set a("a", {{"x", {1, 2}}, {"y", {3}}}), b("b", {{"x", {1, 2}}, {"y", {3}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK(report.passes);
  CHECK(report.first_divergence == -1);
  CHECK(report.remarks.empty());
  CHECK(report.title == "a against b");
  REQUIRE(report.pairs.size() == 2);
  CHECK(report.pairs[0].comparison.name == "x");
}

TEST_CASE(
    "the first divergence is the first that fails; one that merely differs before it is said") {
  Set a("a", {{"p", {1}}, {"q", {1.0000001f}}, {"r", {2}}, {"s", {2}}});
  Set b("b", {{"p", {1}}, {"q", {1}}, {"r", {1}}, {"s", {1}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK_FALSE(report.passes);
  CHECK(report.first_divergence == 2);
  CHECK_THAT(Remarks(report), Contains("\"q\"") && Contains("within its tolerance"));
}

TEST_CASE("what differs within its tolerance passes") {
  Set a("a", {{"x", {1.0000001f}}}), b("b", {{"x", {1}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK(report.passes);
  CHECK_THAT(Remarks(report), Contains("\"x\""));
}

TEST_CASE("missing tensors keep a report from passing, and are no divergence") {
  Set a("a.npz", {{"x", {1}}, {"y", {1}}}), b("b.npz", {{"x", {1}}, {"z", {1}}, {"w", {1}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK_FALSE(report.passes);
  CHECK(report.first_divergence == -1);
  CHECK_THAT(Remarks(report), Contains("2 tensors of the reference missing in the candidate") &&
                                  Contains("1 tensor of the candidate missing in the reference"));
  REQUIRE(report.pairs.size() == 4);
  CHECK(report.pairs[3].tag == "y");
  CHECK(IsMissing(report.pairs[3]));
  CHECK_THAT(report.pairs[3].comparison.verdict.text,
             Contains("Missing: the reference b.npz has no such tensor (float32 [1]"));
}

TEST_CASE("other shapes are a divergence") {
  Set a("a", {{"x", {1, 2}}}), b("b", {{"x", {1, 2, 3}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK_FALSE(report.passes);
  CHECK(report.first_divergence == 0);
  CHECK(report.pairs[0].comparison.verdict.outcome == Outcome::kShapeMismatch);
}

TEST_CASE("NaN everywhere and no elements are said and no difference") {
  Set a("a", {{"x", {kNan, kNan}}, {"y", {}}}), b("b", {{"x", {kNan, kNan}}, {"y", {}}});
  const DiffReport report = CompareSets(a.get(), b.get(), nullptr, {});
  CHECK(report.passes);
  CHECK_THAT(Remarks(report),
             Contains("of 2 pairs nothing could be compared") && !Contains("differs at all"));
}

TEST_CASE("tensors that a capture left out are said with its reason") {
  Set a("a", {{"k#0/arg0", {1}}}), b("b", {{"k#0/arg0", {1}}});
  b.get().metadata = {{"k#0/left_out", R"({"arg1": "more than --capture-memory"})"},
                      {"k#1/left_out", "{}"},
                      {"k#2/left_out", "no JSON"}};
  CHECK_THAT(Remarks(CompareSets(a.get(), b.get(), nullptr, {})),
             Contains("the reference's capture left out the values of 1 tensor; the first is "
                      "k#0/arg1: more than --capture-memory"));
}

TEST_CASE("the given tolerance is used for every pair") {
  Set a("a", {{"x", {1.5f}}, {"y", {2.5f}}}), b("b", {{"x", {1}}, {"y", {2}}});
  CHECK_FALSE(CompareSets(a.get(), b.get(), nullptr, {}).passes);
  CHECK(CompareSets(a.get(), b.get(), nullptr, {.rtol = 0, .atol = 0.5}).passes);
}

}  // namespace
}  // namespace ops_debug::analysis
