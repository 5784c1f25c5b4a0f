// Planted faults, each with a right twin that must give no hint.
#include "analysis/compare/error_structure.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "test/analysis/naive_comparison.h"

namespace ops_debug::analysis {
namespace {

using Index = std::vector<int64_t>;

int64_t CountOf(const Index& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<float> Normal(int64_t count, uint32_t seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// The candidate is fault(index, reference's value); the structure of the difference.
using Fault = std::function<float(const Index&, float)>;
Comparison StructureOf(const Index& shape, const Fault& fault, std::vector<float> values = {},
                       int64_t most_slices = kMostChannels) {
  if (values.empty()) values = Normal(CountOf(shape));
  const proto::Tensor reference = FloatTensor(shape, values);
  const ElementReader reader(reference);
  Index index;
  for (size_t i = 0; i < values.size(); ++i) {
    reader.Unravel(static_cast<int64_t>(i), &index);
    values[i] = fault(index, values[i]);
  }
  const proto::Tensor candidate = FloatTensor(shape, values);
  Comparison comparison = NaiveComparison(candidate, reference, {1.3e-6, 1e-5}, most_slices);
  FindStructure(candidate, reference, &comparison);
  return comparison;
}

// The candidate's values as they are.
Comparison StructureOf(const Index& shape, const std::vector<float>& candidate_values,
                       const std::vector<float>& reference_values) {
  const proto::Tensor candidate = FloatTensor(shape, candidate_values);
  const proto::Tensor reference = FloatTensor(shape, reference_values);
  Comparison comparison = NaiveComparison(candidate, reference);
  FindStructure(candidate, reference, &comparison);
  return comparison;
}

// Normal noise on the elements for which `wrong` holds; rounding noise elsewhere.
class Noise {
 public:
  explicit Noise(std::function<bool(const Index&)> wrong) : wrong_(std::move(wrong)) {}
  float operator()(const Index& index, float value) {
    const float noise = normal_(generator_);
    return value + noise * (wrong_(index) ? 0.1f : 1e-7f);
  }

 private:
  std::function<bool(const Index&)> wrong_;
  std::mt19937 generator_{7};
  std::normal_distribution<float> normal_;
};

std::string Kinds(const Comparison& comparison) {
  std::string kinds;
  for (const PatternHint& hint : comparison.patterns)
    kinds += (kinds.empty() ? "" : " ") + hint.kind;
  return kinds;
}

std::string FirstText(const Comparison& comparison) {
  return comparison.patterns.empty() ? "" : comparison.patterns[0].text;
}

}  // namespace

TEST_CASE("Random errors everywhere give no hint") {
  const Index shape = GENERATE(Index{64, 96}, Index{1000}, Index{4, 6, 5}, Index{2, 16, 20, 24},
                               Index{16}, Index{3, 7}, Index{100000}, Index{70000, 2});
  const Comparison comparison =
      StructureOf(shape, Noise([](const Index&) { return true; }), {}, 256);
  INFO(FirstText(comparison));
  CHECK(comparison.patterns.empty());
}

TEST_CASE("Random errors of many seeds in small tensors give no hint") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const std::vector<float> reference = Normal(48, seed), noise = Normal(48, 1000 + seed);
    std::vector<float> candidate = reference;
    for (size_t i = 0; i < candidate.size(); ++i) candidate[i] += 0.1f * noise[i];
    for (const Index& shape : {Index{48}, Index{6, 8}, Index{2, 4, 6}}) {
      const Comparison comparison = StructureOf(shape, candidate, reference);
      INFO("seed " << seed << ": " << FirstText(comparison));
      CHECK(comparison.patterns.empty());
    }
  }
}

TEST_CASE("Scattered wrong elements give no hint") {
  std::mt19937 generator(3);
  const int64_t one_in = GENERATE(5, 64, 500);
  const Comparison comparison =
      StructureOf({64, 96}, Noise([&](const Index&) { return generator() % one_in == 0; }));
  REQUIRE(comparison.whole.failed > 5);
  INFO(FirstText(comparison));
  CHECK(comparison.patterns.empty());
}

TEST_CASE("Scattered wrong rows give no hint") {
  const Comparison comparison = StructureOf({64, 96}, Noise([](const Index& i) {
                                              return i[0] * 2654435761u % 4294967296u < 900000000u;
                                            }));
  REQUIRE(comparison.whole.failed > 300);
  INFO(FirstText(comparison));
  CHECK(comparison.patterns.empty());
}

TEST_CASE("Errors that are large only where the values are give no hint") {
  std::vector<float> values = Normal(64 * 300);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / 300 == 16) values[i] *= 300;
  }
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  const Comparison comparison = StructureOf(
      {64, 300}, [&](const Index&, float value) { return value * (1 + 1e-3f * normal(generator)); },
      values);
  CHECK(comparison.axes[0].ranked == std::vector<uint32_t>{16});
  INFO(FirstText(comparison));
  CHECK(comparison.patterns.empty());
}

TEST_CASE("A wrong channel is named though rounding fails the tolerance elsewhere") {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  const Comparison comparison = StructureOf({64, 300}, [&](const Index& i, float value) {
    return value + (i[0] == 16 ? 0.5f : 2e-5f) * normal(generator);
  });
  REQUIRE(comparison.whole.failed > 3000);
  CHECK(FirstText(comparison) ==
        "index 16 of dim 0 is wrong; elsewhere elements fail, too, by far less");
}

TEST_CASE("Equal tensors have no structure") {
  const Comparison comparison =
      StructureOf({8, 8}, [](const Index&, float value) { return value; });
  CHECK(comparison.patterns.empty());
  CHECK(comparison.terms.empty());
  CHECK(comparison.axes[0].explained == 0);
}

TEST_CASE("Rounding noise within the tolerance gives no hint") {
  const Comparison comparison =
      StructureOf({64, 64}, [](const Index&, float value) { return value * (1 + 5e-7f); });
  REQUIRE(comparison.whole.failed == 0);
  CHECK(comparison.patterns.empty());
}

TEST_CASE("A single wrong channel is named with its axis") {
  const Comparison comparison =
      StructureOf({2, 32, 14, 14}, Noise([](const Index& i) { return i[1] == 16; }));
  CHECK(Kinds(comparison) == "channel");
  CHECK(FirstText(comparison) == "index 16 of dim 1 is wrong");
  CHECK(comparison.patterns[0].confidence > 0.9);
  CHECK(comparison.patterns[0].evidence == "100 % of the squared error in 3.1 % of the elements");
  REQUIRE(comparison.axes[1].ranked.size() == 1);
  CHECK(comparison.axes[1].ranked[0] == 16);
  CHECK(comparison.axes[1].explained > 0.6);
  CHECK(comparison.axes[0].explained < 0.01);
}

TEST_CASE("A few wrong channels are listed") {
  const Comparison comparison = StructureOf(
      {64, 50}, Noise([](const Index& i) { return i[0] == 3 || i[0] == 17 || i[0] == 40; }));
  CHECK(FirstText(comparison) == "indices 3, 17 and 40 of dim 0 are wrong");
  CHECK(comparison.axes[0].ranked.size() == 3);
}

TEST_CASE("From a channel on") {
  const Comparison comparison =
      StructureOf({2, 64, 20}, Noise([](const Index& i) { return i[1] >= 16; }));
  CHECK(Kinds(comparison) == "run");
  CHECK(FirstText(comparison) == "dim 1 is wrong from index 16 on (48 of 64)");
}

TEST_CASE("Every k-th index with its offset") {
  struct Case {
    int64_t period, offset, width;
    const char *kind, *text;
  };
  const Case plant = GENERATE(
      Case{3, 1, 1, "periodic", "every 3rd index of dim 1 from 1"},
      Case{2, 1, 1, "periodic", "every 2nd index of dim 1 from 1"},
      Case{16, 3, 1, "periodic", "every 16th index of dim 1 from 3"},
      Case{10, 4, 3, "periodic", "3 of every 10 indices of dim 1 from 4"},
      Case{4, 1, 3, "periodic", "3 of every 4 indices of dim 1 from 1"},
      Case{64, 63, 1, "tile-edge", "the last index of each tile of 64 of dim 1"},
      Case{16, 0, 2, "tile-edge", "the first 2 of each tile of 16 of dim 1"},
      Case{16, 15, 2, "tile-edge", "the last 1 and the first 1 of each tile of 16 of dim 1"},
      Case{32, 5, 1, "warp-lanes",
           "lane 5 of each 32 indices of dim 1: the same lanes of each warp"},
      Case{32, 16, 16, "warp-lanes",
           "lanes 16 to 31 of each 32 indices of dim 1: the same lanes of each warp"},
      Case{256, 96, 32, "warp-lanes",
           "warp 3 of each 8 (32 indices from 96 of each 256) of dim 1"});
  const Comparison comparison = StructureOf({8, 1024}, Noise([&](const Index& i) {
                                              const int64_t residue = i[1] % plant.period;
                                              const int64_t end = plant.offset + plant.width;
                                              return (residue >= plant.offset && residue < end) ||
                                                     residue + plant.period < end;
                                            }));
  INFO(plant.text);
  CHECK(Kinds(comparison) == plant.kind);
  CHECK(FirstText(comparison) == plant.text);
}

TEST_CASE("Every k-th index of an outer axis is a tile's edge, no warp's lane") {
  const Comparison comparison =
      StructureOf({256, 24}, Noise([](const Index& i) { return i[0] % 32 == 31; }));
  CHECK(FirstText(comparison) == "the last index of each tile of 32 of dim 0");
}

TEST_CASE("A period of an axis too long to be kept slice by slice") {
  const Comparison comparison =
      StructureOf({100000}, Noise([](const Index& i) { return i[0] % 24 == 7; }), {}, 256);
  CHECK(FirstText(comparison) == "every 24th index of dim 0 from 7");
}

TEST_CASE("A run of an axis too long to be kept slice by slice ends where it ends") {
  const Comparison comparison = StructureOf(
      {100000}, Noise([](const Index& i) { return i[0] >= 31415 && i[0] < 77777; }), {}, 256);
  CHECK(FirstText(comparison) == "indices 31415 to 77776 of dim 0 are wrong");
}

TEST_CASE("A period of memory order that no axis shows") {
  // 1000 is no multiple of 32: the lane moves from row to row.
  const Comparison comparison = StructureOf(
      {100, 1000}, Noise([](const Index& i) { return (i[0] * 1000 + i[1]) % 32 == 9; }));
  CHECK(FirstText(comparison) ==
        "lane 9 of each 32 indices of memory order: the same lanes of each warp");
}

TEST_CASE("The partial tile at the end of an axis") {
  const Comparison comparison =
      StructureOf({12, 1000}, Noise([](const Index& i) { return i[1] >= 992; }));
  CHECK(Kinds(comparison) == "last-tile");
  CHECK(FirstText(comparison) ==
        "the last 8 of dim 1 (992 to 999): what is left behind full tiles of 16 or 32");
}

TEST_CASE("The remainder of a vectorised loop over a long axis") {
  const Comparison comparison = StructureOf(
      {100003}, [](const Index& i, float value) { return i[0] >= 100000 ? 0 : value; }, {}, 256);
  // Three elements are few: they are named.
  CHECK(Kinds(comparison) == "last-tile");
  CHECK(FirstText(comparison) ==
        "few elements alone fail: (100000), (100001), (100002), the last of memory order: what is "
        "left behind full groups of 4");
}

TEST_CASE("The tail of memory order that was not written") {
  const Comparison comparison = StructureOf({101, 103}, [](const Index& i, float value) {
    return i[0] * 103 + i[1] >= 10240 ? 0.0f : value;
  });
  CHECK(Kinds(comparison) == "last-tile zeros");
  CHECK(FirstText(comparison).starts_with("the last 163 of memory order (10240 to 10402)"));
}

TEST_CASE("The border of an image is one pattern of two axes") {
  const Comparison comparison = StructureOf(
      {2, 3, 28, 40},
      Noise([](const Index& i) { return i[2] == 0 || i[2] == 27 || i[3] == 0 || i[3] == 39; }));
  REQUIRE(comparison.patterns.size() == 1);
  CHECK(comparison.patterns[0].kind == "border");
  CHECK(
      FirstText(comparison) ==
      "the first and the last index of dim 2 are wrong, and the first and the last index of dim 3 "
      "are wrong");
}

TEST_CASE("K68: gradients added at row -1 and column -1 land at the end of rows and planes") {
  const Comparison comparison =
      StructureOf({2, 6, 23, 30}, Noise([](const Index& i) { return i[2] == 22 || i[3] == 29; }));
  REQUIRE(comparison.patterns.size() == 1);
  CHECK(FirstText(comparison) ==
        "index 22 of dim 2, the last, is wrong, and index 29 of dim 3, the last, is wrong");
}

TEST_CASE("The edges of tiles of a matrix are one pattern of two axes") {
  const Comparison comparison = StructureOf(
      {128, 160}, Noise([](const Index& i) { return i[0] % 16 == 15 || i[1] % 16 == 15; }));
  REQUIRE(comparison.patterns.size() == 1);
  CHECK(comparison.patterns[0].kind == "tile-edge");
  CHECK(FirstText(comparison) ==
        "the last index of each tile of 16 of dim 0, and the last index of each tile of 16 of dim "
        "1");
}

TEST_CASE("One outlier is no channel") {
  const Comparison comparison = StructureOf({32, 32}, [](const Index& i, float value) {
    return i == Index{5, 9} ? value + 100
                            : value + 1e-3f * static_cast<float>((i[0] * 7 + i[1]) % 5);
  });
  CHECK(Kinds(comparison).find("single-element") != std::string::npos);
  CHECK(Kinds(comparison).find("channel") == std::string::npos);
  CHECK(FirstText(comparison).find("(5, 9)") != std::string::npos);
}

TEST_CASE("Transposed") {
  const std::vector<float> values = Normal(48 * 48);
  const Comparison square = StructureOf({48, 48}, [&](const Index& i, float) {
    return values[static_cast<size_t>(i[1] * 48 + i[0])];
  });
  CHECK(Kinds(square) == "transposed");
  CHECK(FirstText(square) == "dims 0 and 1 are transposed");
}

TEST_CASE("Written in the transposed layout") {
  const std::vector<float> values = Normal(3 * 24 * 40);
  const Comparison comparison = StructureOf({3, 24, 40}, [&](const Index& i, float) {
    const int64_t q = i[1] * 40 + i[2];  // holds the 40 x 24 transpose
    return values[static_cast<size_t>(i[0] * 960 + q % 24 * 40 + q / 24)];
  });
  CHECK(Kinds(comparison) == "transposed");
  CHECK(FirstText(comparison) ==
        "dims 1 and 2 are transposed: the candidate's memory holds the 40 x 24 transpose");
}

TEST_CASE("A symmetric matrix with noise is not transposed") {
  const std::vector<float> raw = Normal(40 * 40);
  std::vector<float> values(raw.size());
  for (size_t i = 0; i < 40; ++i) {
    for (size_t j = 0; j < 40; ++j) values[i * 40 + j] = raw[i * 40 + j] + raw[j * 40 + i];
  }
  const Comparison comparison =
      StructureOf({40, 40}, Noise([](const Index&) { return true; }), values);
  CHECK(comparison.patterns.empty());
}

TEST_CASE("Shifted by one row, column or element") {
  const Index shape = {30, 37};
  const std::vector<float> values = Normal(CountOf(shape));
  const auto at = [&](int64_t position) {
    const auto size = static_cast<int64_t>(values.size());
    return values[static_cast<size_t>((position + size) % size)];
  };
  const Comparison row =
      StructureOf(shape, [&](const Index& i, float) { return at(i[0] * 37 + i[1] - 37); });
  CHECK(FirstText(row) == "shifted along dim 0 by 1: the candidate at i is the reference at i - 1");
  const Comparison column = StructureOf(
      shape, [&](const Index& i, float) { return i[1] == 36 ? 0 : at(i[0] * 37 + i[1] + 1); });
  CHECK(FirstText(column) ==
        "shifted along dim 1 by -1: the candidate at i is the reference at i + 1");
  CHECK(Kinds(column) == "shifted");
}

TEST_CASE("Halves, neighbours and the order of an axis") {
  const Index shape = {6, 40, 5};
  const std::vector<float> values = Normal(CountOf(shape));
  const auto mapped = [&](const std::function<int64_t(int64_t)>& map) {
    return StructureOf(shape, [&, map](const Index& i, float) {
      return values[static_cast<size_t>((i[0] * 40 + map(i[1])) * 5 + i[2])];
    });
  };
  CHECK(FirstText(mapped([](int64_t i) { return (i + 20) % 40; })) ==
        "the halves of dim 1 are swapped: i and i + 20");
  CHECK(FirstText(mapped([](int64_t i) { return i ^ 1; })) ==
        "neighbours along dim 1 are swapped: 2i and 2i + 1");
  CHECK(FirstText(mapped([](int64_t i) { return 39 - i; })) == "dim 1 is reversed: i and 39 - i");
}

TEST_CASE("A constant factor is named after the size that it comes from") {
  const Comparison comparison =
      StructureOf({16, 96}, [](const Index&, float value) { return value / 96; });
  CHECK(Kinds(comparison) == "factor");
  CHECK(FirstText(comparison) ==
        "the candidate is 0.0104167 (1 / 96, the size of dim 1) times the reference");
}

TEST_CASE("A constant offset") {
  const Comparison comparison =
      StructureOf({16, 96}, [](const Index&, float value) { return value + 0.25f; });
  CHECK(FirstText(comparison) == "the candidate is the reference + 0.25");
}

TEST_CASE("The sign flipped everywhere, and in one channel") {
  const Comparison all = StructureOf({16, 96}, [](const Index&, float value) { return -value; });
  CHECK(FirstText(all) == "the sign is flipped everywhere");
  const Comparison one =
      StructureOf({16, 96}, [](const Index& i, float value) { return i[0] == 3 ? -value : value; });
  CHECK(Kinds(one) == "channel sign");
}

TEST_CASE("A factor in one channel alone") {
  const Comparison comparison = StructureOf(
      {16, 96}, [](const Index& i, float value) { return i[0] == 3 ? value * 0.5f : value; });
  REQUIRE(Kinds(comparison) == "channel factor");
  CHECK(comparison.patterns[1].text == "where it fails the candidate is 0.5 times the reference");
}

TEST_CASE("Zeros that nobody wrote") {
  const Comparison comparison = StructureOf(
      {40, 64}, [](const Index& i, float value) { return i[0] >= 30 && i[1] >= 48 ? 0 : value; });
  CHECK(Kinds(comparison).find("zeros") != std::string::npos);
}

TEST_CASE("NaN in rows that nobody wrote") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Comparison comparison = StructureOf(
      {40, 64}, [nan](const Index& i, float value) { return i[0] >= 30 ? nan : value; });
  CHECK(Kinds(comparison) == "run not-finite");
  CHECK(FirstText(comparison) == "dim 0 is wrong from index 30 on (10 of 40)");
  CHECK(comparison.patterns[0].evidence == "100 % of the failing elements in 25 % of the elements");
}

TEST_CASE("Saturated values") {
  const Comparison comparison =
      StructureOf({64, 64}, [](const Index&, float value) { return std::min(value, 1.0f); });
  CHECK(FirstText(comparison) ==
        "where it fails the candidate is always 1, where the reference lies beyond: clamped or "
        "saturated");
}

TEST_CASE("Values rounded through a smaller type") {
  const Comparison comparison = StructureOf({64, 64}, [](const Index&, float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, 4);
    return value;
  });
  REQUIRE(!comparison.patterns.empty());
  CHECK(Kinds(comparison) == "rounded");
}

TEST_CASE("K67: a gradient that lands at another place keeps its sum") {
  // Nearest down-sampling 8 x 8 to 2 x 2: the gradient belongs to the first pixel of each window.
  std::vector<float> reference(2 * 3 * 64), candidate(reference.size());
  const std::vector<float> gradient = Normal(2 * 3 * 4);
  for (size_t plane = 0; plane < 6; ++plane) {
    for (size_t y = 0; y < 2; ++y) {
      for (size_t x = 0; x < 2; ++x) {
        const float value = gradient[plane * 4 + y * 2 + x];
        reference[plane * 64 + y * 4 * 8 + x * 4] = value;
        candidate[plane * 64 + (y * 4 + 3) * 8 + x * 4 + 3] = value;
      }
    }
  }
  const Comparison comparison = StructureOf({2, 3, 8, 8}, candidate, reference);
  REQUIRE(!comparison.patterns.empty());
  CHECK(comparison.patterns[0].kind == "moved");
  CHECK(comparison.patterns[0].text.find("all by (0, 0, 3, 3)") != std::string::npos);
  CHECK(comparison.patterns[0].text.find("index map, not the scale") != std::string::npos);
  CHECK(comparison.patterns[0].evidence.find("the sum is kept") != std::string::npos);
}

TEST_CASE("K67: one pixel of one plane") {
  std::vector<float> reference(16), candidate(16);
  reference[0] = 1;
  candidate[15] = 1;
  const Comparison comparison = StructureOf({1, 1, 4, 4}, candidate, reference);
  REQUIRE(!comparison.patterns.empty());
  CHECK(comparison.patterns[0].kind == "moved");
  CHECK(comparison.patterns[0].text.find(
            "the candidate has 1 at (0, 0, 3, 3), the reference 1 at (0, 0, 0, 0)") !=
        std::string::npos);
}

TEST_CASE("A gradient of the wrong scale has not moved") {
  std::vector<float> reference(16), candidate(16);
  reference[0] = 1, reference[5] = 2;
  candidate[0] = 2, candidate[5] = 4;
  const Comparison comparison = StructureOf({1, 1, 4, 4}, candidate, reference);
  CHECK(Kinds(comparison).find("moved") == std::string::npos);
}

TEST_CASE("The rank-1 term names the channel and the tile") {
  const Comparison comparison = StructureOf(
      {4, 32, 64}, Noise([](const Index& i) { return i[1] == 20 && i[2] >= 32 && i[2] < 36; }));
  REQUIRE(!comparison.terms.empty());
  const RankOneTerm& term = comparison.terms[0];
  CHECK(term.explained > 0.9);
  REQUIRE(term.factors.size() == 3);
  CHECK(term.factors[0].peaks.empty());  // all four images alike
  CHECK(term.factors[1].peaks == std::vector<int64_t>{20});
  for (const int64_t peak : term.factors[2].peaks) CHECK((peak >= 32 && peak < 36));
  CHECK(!term.factors[2].peaks.empty());
}

TEST_CASE("Two places are two rank-1 terms") {
  const Comparison comparison = StructureOf({32, 64}, [](const Index& i, float value) {
    if (i[0] == 4 && i[1] == 40) return value + 3;
    return i[0] == 20 && i[1] == 9 ? value + 2 : value;
  });
  REQUIRE(comparison.terms.size() == 2);
  CHECK(comparison.terms[0].weight == Approx(3).epsilon(1e-3));
  CHECK(comparison.terms[1].weight == Approx(2).epsilon(1e-3));
  CHECK(comparison.terms[0].explained == Approx(9.0 / 13).epsilon(1e-3));
  CHECK(comparison.terms[0].factors[0].peaks == std::vector<int64_t>{4});
  CHECK(comparison.terms[1].factors[1].peaks == std::vector<int64_t>{9});
}

TEST_CASE("Ranked channels of random errors are few") {
  const Comparison comparison = StructureOf({64, 300}, Noise([](const Index&) { return true; }));
  CHECK(comparison.axes[0].ranked.empty());
  CHECK(comparison.axes[1].ranked.empty());
  CHECK(comparison.axes[0].explained < 0.05);
  CHECK(comparison.axes[1].explained < 0.05);
}

TEST_CASE("Structure of unusual tensors is found without harm") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Index shape = GENERATE(Index{}, Index{1}, Index{0}, Index{4, 0, 3}, Index{1, 1, 17},
                               Index{2, 3, 2, 3, 2, 3, 2, 3});
  const float wrong = GENERATE_COPY(1.0f, 3e38f, 1e-38f, inf, nan, 0.0f);
  const std::vector<float> reference = Normal(CountOf(shape));
  std::vector<float> candidate = reference;
  for (float& value : candidate) value += wrong;
  const Comparison comparison = StructureOf(shape, candidate, reference);
  for (const Axis& axis : comparison.axes) {
    CHECK(axis.explained >= 0);
    CHECK(axis.explained <= 1);
  }
  for (const RankOneTerm& term : comparison.terms) CHECK(std::isfinite(term.explained));
  for (const PatternHint& hint : comparison.patterns) {
    CHECK(hint.confidence >= 0);
    CHECK(hint.confidence <= 1);
  }
}

TEST_CASE("The conjugate of a complex tensor") {
  const std::vector<float> reference = Normal(2 * 12 * 10);
  std::vector<float> candidate = reference;
  for (size_t i = 1; i < candidate.size(); i += 2) candidate[i] = -candidate[i];
  proto::Tensor a = FloatTensor({24, 10}, candidate), b = FloatTensor({24, 10}, reference);
  a.dtype = b.dtype = proto::DType::kComplex64;
  a.shape = b.shape = {12, 10};
  Comparison comparison;
  comparison.shape = a.shape;
  comparison.candidate_dtype = comparison.reference_dtype = a.dtype;
  comparison.verdict = {Outcome::kFail, "", {1.3e-6, 1e-5}, true, {}, {}, 0, 0, {}};
  comparison.whole.count = comparison.whole.finite = comparison.whole.failed = 120;
  comparison.whole.l1 = comparison.whole.l2 = 10;
  comparison.whole.max_abs = 2;
  comparison.grid = {{12, 10}, {1, 1}, std::vector<double>(120, 1), std::vector<int64_t>(120, 1)};
  FindStructure(a, b, &comparison);
  CHECK(FirstText(comparison) == "where it fails the candidate is the conjugate of the reference");
}

TEST_CASE("Strides do not matter") {
  // The candidate is stored column by column and right but for row 5.
  const std::vector<float> reference = Normal(20 * 30);
  std::vector<float> stored(reference.size());
  for (size_t i = 0; i < 20; ++i) {
    for (size_t j = 0; j < 30; ++j) {
      stored[j * 20 + i] = reference[i * 30 + j] + (i == 5 ? 0.1f * static_cast<float>(j + 1) : 0);
    }
  }
  proto::Tensor candidate = FloatTensor({20, 30}, stored);
  candidate.strides = {1, 20};
  const proto::Tensor expected = FloatTensor({20, 30}, reference);
  Comparison comparison = NaiveComparison(candidate, expected);
  FindStructure(candidate, expected, &comparison);
  CHECK(Kinds(comparison) == "channel");
  CHECK(FirstText(comparison) == "index 5 of dim 0 is wrong");
}

}  // namespace ops_debug::analysis
