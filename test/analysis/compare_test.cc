// The pass over memory against an element-by-element comparison, for every type, odd strides and
// corner cases.
#include "analysis/compare/compare.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "analysis/compare/element_value.h"

namespace ops_debug::analysis {
namespace {

using proto::DType;
using proto::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Random bytes would be NaN too often: elements are numbers of the type, near each other in both
// tensors.
struct Pair {
  Tensor candidate, reference;
};

std::shared_ptr<std::vector<std::byte>> Room(Tensor* tensor) {
  auto bytes = std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(tensor->ElementCount()) * proto::ElementBytes(tensor->dtype) + 1);
  tensor->data = bytes->data() + 1;  // alignment is not promised
  tensor->owner = bytes;
  return bytes;
}

template <class T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void PutNumber(DType dtype, double value, std::byte* at) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(at, value > 0);
    case DType::kInt8:
      return Put<int8_t>(at, static_cast<int8_t>(value * 100));
    case DType::kUint8:
      return Put<uint8_t>(at, static_cast<uint8_t>(std::abs(value) * 100));
    case DType::kInt16:
      return Put<int16_t>(at, static_cast<int16_t>(value * 1000));
    case DType::kUint16:
      return Put<uint16_t>(at, static_cast<uint16_t>(std::abs(value) * 1000));
    case DType::kInt32:
      return Put<int32_t>(at, static_cast<int32_t>(value * 1e6));
    case DType::kUint32:
      return Put<uint32_t>(at, static_cast<uint32_t>(std::abs(value) * 1e6));
    case DType::kInt64:
      return Put<int64_t>(at, static_cast<int64_t>(value * 1e6));
    case DType::kUint64:
      return Put<uint64_t>(at, static_cast<uint64_t>(std::abs(value) * 1e6));
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return Put<uint8_t>(at, static_cast<uint8_t>(std::abs(value) * 50));
    case DType::kFloat16:
      return Put<uint16_t>(at, static_cast<uint16_t>(std::abs(value) * 12000));
    case DType::kBfloat16:
      return Put<uint16_t>(at, static_cast<uint16_t>(bits >> 16));
    case DType::kTf32:
    case DType::kFloat32:
      return Put<float>(at, static_cast<float>(value));
    case DType::kFloat64:
      return Put<double>(at, value);
    case DType::kComplex64:
      Put<float>(at, static_cast<float>(value));
      return Put<float>(at + 4, static_cast<float>(1 - value));
    case DType::kComplex128:
      Put<double>(at, value);
      return Put<double>(at + 8, 1 - value);
  }
}

Pair RandomPair(DType dtype, std::vector<int64_t> shape, double error, uint32_t seed = 1) {
  Pair pair;
  pair.candidate.dtype = pair.reference.dtype = dtype;
  pair.candidate.shape = pair.reference.shape = std::move(shape);
  const auto c = Room(&pair.candidate), r = Room(&pair.reference);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1), size(0, 1);
  const int64_t bytes = proto::ElementBytes(dtype);
  for (int64_t i = 0; i < pair.reference.ElementCount(); ++i) {
    const double number = value(random);
    PutNumber(dtype, number, r->data() + 1 + i * bytes);
    PutNumber(dtype, size(random) < 0.5 ? number : number * (1 + error * value(random)),
              c->data() + 1 + i * bytes);
  }
  return pair;
}

void Set(const Tensor& tensor, int64_t position, float value) {
  auto* bytes = const_cast<std::byte*>(tensor.data);
  std::memcpy(bytes + position * 4, &value, sizeof value);
}

// What the engine must find, one element after the other.
struct Naive {
  int64_t failed = 0, equal = 0, finite = 0;
  double l1 = 0, dd = 0, rr = 0, cc = 0, rc = 0, max_abs = 0, max_rel = 0;
  std::vector<double> heat_errors;                 // by position
  std::vector<std::vector<double>> squared_error;  // by axis and index
};

Naive Look(const Pair& pair, Tolerance tolerance) {
  Naive found;
  const ElementReader candidate(pair.candidate), reference(pair.reference);
  const size_t rank = pair.reference.shape.size();
  for (size_t axis = 0; axis < rank; ++axis)
    found.squared_error.emplace_back(static_cast<size_t>(pair.reference.shape[axis]));
  std::vector<int64_t> index;
  for (int64_t position = 0; position < reference.count(); ++position) {
    const std::complex<double> c = candidate.AtPosition(position),
                               r = reference.AtPosition(position);
    const double error = std::abs(c - r);
    reference.Unravel(position, &index);
    ++found.finite;
    found.equal += c == r;
    found.failed += error > tolerance.atol + tolerance.rtol * std::abs(r);
    found.l1 += error;
    found.dd += error * error;
    found.rr += std::norm(r);
    found.cc += std::norm(c);
    found.rc += (std::conj(r) * c).real();
    found.max_abs = std::max(found.max_abs, error);
    if (std::abs(r) > 0) found.max_rel = std::max(found.max_rel, error / std::abs(r));
    found.heat_errors.push_back(error);
    for (size_t axis = 0; axis < rank; ++axis)
      found.squared_error[axis][static_cast<size_t>(index[axis])] += error * error;
  }
  return found;
}

void CheckAgainstNaive(const Pair& pair) {
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  const Naive naive = Look(pair, found.verdict.used);
  CHECK(found.whole.count == pair.reference.ElementCount());
  CHECK(found.whole.finite == naive.finite);
  CHECK(found.whole.failed == naive.failed);
  if (pair.reference.dtype != DType::kTf32) CHECK(found.whole.equal == naive.equal);
  CHECK(found.whole.l1 == Approx(naive.l1).epsilon(1e-9));
  CHECK(found.whole.l2 == Approx(std::sqrt(naive.dd)).epsilon(1e-9));
  CHECK(found.whole.cosine == Approx(naive.rc / std::sqrt(naive.rr * naive.cc)).epsilon(1e-9));
  CHECK(found.whole.max_abs == Approx(naive.max_abs).epsilon(1e-12));
  CHECK(found.whole.max_rel == Approx(naive.max_rel).epsilon(1e-12));
  CHECK(std::accumulate(found.histograms.ulps.begin(), found.histograms.ulps.end(), int64_t{0}) ==
        found.whole.count);
  CHECK(std::accumulate(found.histograms.decades.begin(), found.histograms.decades.end(),
                        int64_t{0}) == found.whole.count);
  for (size_t axis = 0; axis < pair.reference.shape.size(); ++axis) {
    REQUIRE(found.axes.size() > axis);
    double sum = 0;
    for (const Channel& channel : found.axes[axis].channels) {
      double expected = 0;
      for (int64_t i = 0; i < found.axes[axis].bin && channel.index + i < found.axes[axis].size;
           ++i)
        expected += naive.squared_error[axis][static_cast<size_t>(channel.index + i)];
      CHECK(channel.squared_error == Approx(expected).epsilon(1e-9).margin(1e-300));
      sum += channel.squared_error;
    }
    CHECK(sum == Approx(naive.dd).epsilon(1e-9));
  }
  if (!pair.reference.shape.empty()) {
    CHECK(std::accumulate(found.grid.squared_error.begin(), found.grid.squared_error.end(), 0.0) ==
          Approx(naive.dd).epsilon(1e-9));
  }
  const HeatMap& heat = found.heat;
  std::vector<double> cells(size_t{heat.rows} * heat.columns);
  for (size_t i = 0; i < naive.heat_errors.size(); ++i) {
    const auto width = static_cast<size_t>(heat.folded_shape[1]);
    double& cell = cells[i / width / heat.tile_rows * heat.columns + i % width / heat.tile_columns];
    cell = std::max(cell, naive.heat_errors[i]);
  }
  REQUIRE(heat.cells.size() == cells.size());
  for (size_t i = 0; i < cells.size(); ++i) CHECK(heat.cells[i] == Approx(cells[i]).epsilon(1e-12));
}

TEST_CASE("every type agrees with an element-by-element comparison") {
  const auto dtype = static_cast<DType>(GENERATE(range(0, 18)));
  INFO(proto::Name(dtype));
  CheckAgainstNaive(RandomPair(dtype, {3, 37, 41}, 1e-2));
}

TEST_CASE("every shape agrees with an element-by-element comparison") {
  const auto shape =
      GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{1}, std::vector<int64_t>{5000},
               std::vector<int64_t>{3, 20000}, std::vector<int64_t>{20000, 3},
               std::vector<int64_t>{2, 3, 1, 2, 3, 2, 2, 5}, std::vector<int64_t>{300, 300},
               std::vector<int64_t>{1, 7, 65, 33}, std::vector<int64_t>{64, 1},
               std::vector<int64_t>{9000, 1, 2});
  const auto dtype = GENERATE(DType::kFloat32, DType::kFloat64);
  CheckAgainstNaive(RandomPair(dtype, shape, 1e-3));
}

TEST_CASE("long vectors are summed by chunks") {
  Pair pair = RandomPair(DType::kFloat32, {1 << 23}, 0);
  Set(pair.candidate, 5'000'000, 100);
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  CHECK(found.whole.failed == 1);
  CHECK(found.worst.at(0).index == std::vector<int64_t>{5'000'000});
  int64_t failing = 0;
  for (const Channel& channel : found.axes.at(0).channels) {
    if (channel.failed == 0) continue;
    ++failing;
    CHECK(channel.index <= 5'000'000);
    CHECK(channel.index + found.axes[0].bin > 5'000'000);
  }
  CHECK(failing == 1);
}

TEST_CASE("strides are followed: transposed, broadcast, reversed") {
  Pair pair = RandomPair(DType::kFloat32, {40, 50}, 1e-3);
  for (Tensor* tensor : {&pair.candidate, &pair.reference}) {
    tensor->shape = {50, 40};
    tensor->strides = {1, 50};
  }
  CheckAgainstNaive(pair);
  pair.reference.strides = {0, 1};
  CheckAgainstNaive(pair);
  pair.candidate.data += 1999 * 4;
  pair.candidate.strides = {-1, -50};
  CheckAgainstNaive(pair);
}

TEST_CASE("the result does not depend on the number of threads") {
  const Pair pair = RandomPair(DType::kFloat32, {1500, 3000}, 1e-4);
  CompareOptions one, four;
  one.threads = 1;
  four.threads = 4;
  const Comparison a = Compare(pair.candidate, pair.reference, one);
  const Comparison b = Compare(pair.candidate, pair.reference, four);
  CHECK(a.whole.l2 == b.whole.l2);
  CHECK(a.whole.l1 == b.whole.l1);
  CHECK(a.whole.cosine == b.whole.cosine);
  CHECK(a.grid.squared_error == b.grid.squared_error);
  CHECK(a.worst.at(3).index == b.worst.at(3).index);
  CHECK(a.verdict.passing_rtol == b.verdict.passing_rtol);
}

TEST_CASE("NaN and infinities match by position and sign") {
  Pair pair = RandomPair(DType::kFloat32, {64, 64}, 0);
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const auto both = [&](int64_t position, float c, float r) {
    Set(pair.candidate, position, c);
    Set(pair.reference, position, r);
  };
  both(10, nan, nan);
  both(20, inf, inf);
  CHECK(Compare(pair.candidate, pair.reference, {}).verdict.outcome == Outcome::kPass);
  both(30, nan, 1);
  both(40, inf, -inf);
  both(50, 1, inf);
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  CHECK(found.verdict.outcome == Outcome::kFail);
  CHECK(found.whole.failed == 3);
  CHECK(found.whole.nan_candidate == 2);
  CHECK(found.whole.nan_reference == 1);
  CHECK(found.whole.nan_both == 1);
  CHECK(found.whole.inf_candidate == 2);
  CHECK(found.whole.inf_reference == 3);
  CHECK(found.whole.inf_both == 1);
  CHECK(found.whole.finite == 64 * 64 - 5);
  CHECK_FALSE(found.verdict.passing_rtol);
  CHECK_FALSE(found.verdict.passing_atol);
  REQUIRE(found.worst.size() >= 3);
  CHECK(found.worst[0].index == std::vector<int64_t>{0, 30});
  CHECK(found.worst[0].abs_error == kInfinity);
  CHECK(found.worst[2].index == std::vector<int64_t>{0, 50});
  CHECK(found.heat.cells[30] == kInfinity);
  CHECK(found.heat.cells[31] == 0);
}

TEST_CASE("the tolerance that would pass does, and a smaller one does not") {
  const Pair pair =
      RandomPair(GENERATE(DType::kFloat32, DType::kFloat64, DType::kBfloat16), {70, 90}, 0.1);
  CompareOptions options;
  options.rtol = 1e-5;
  options.atol = 0;
  const Comparison found = Compare(pair.candidate, pair.reference, options);
  REQUIRE(found.verdict.outcome == Outcome::kFail);
  REQUIRE(found.verdict.passing_rtol);
  REQUIRE(found.verdict.passing_atol);
  const auto outcome = [&](double rtol, double atol) {
    options.rtol = rtol;
    options.atol = atol;
    return Compare(pair.candidate, pair.reference, options).verdict.outcome;
  };
  CHECK(outcome(*found.verdict.passing_rtol, 0) == Outcome::kPass);
  CHECK(outcome(*found.verdict.passing_rtol * (1 - 1e-6), 0) == Outcome::kFail);
  CHECK(outcome(1e-5, *found.verdict.passing_atol) == Outcome::kPass);
  CHECK(outcome(1e-5, *found.verdict.passing_atol * (1 - 1e-6)) == Outcome::kFail);
}

TEST_CASE("distances in ULPs are counted in the less precise type") {
  Pair pair = RandomPair(DType::kFloat32, {4}, 0);
  Set(pair.reference, 0, 1);
  Set(pair.candidate, 0, std::nextafterf(1, 2));
  Set(pair.reference, 1, std::numeric_limits<float>::denorm_min());
  Set(pair.candidate, 1, -std::numeric_limits<float>::denorm_min());
  Set(pair.reference, 2, 0.0f);
  Set(pair.candidate, 2, -0.0f);
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  CHECK(found.histograms.ulps[0] == 2);
  CHECK(found.histograms.ulps[1] == 1);
  CHECK(found.histograms.ulps[2] == 1);
  CHECK(found.worst.at(0).ulps == 1);
  // Against float64 it is float32 that counts.
  Tensor wide = RandomPair(DType::kFloat64, {4}, 0).reference;
  for (int i = 0; i < 4; ++i)
    Put<double>(const_cast<std::byte*>(wide.data) + 8 * i, static_cast<double>(i) + 1 + 1e-12);
  for (int i = 0; i < 4; ++i) Set(pair.candidate, i, static_cast<float>(i + 1));
  const Comparison mixed = Compare(pair.candidate, wide, {});
  CHECK(mixed.histograms.ulps[0] == 4);
  CHECK(mixed.whole.max_abs > 0);
}

TEST_CASE("differences of 64-bit integers are exact") {
  Pair pair = RandomPair(DType::kInt64, {3}, 0);
  const int64_t large = int64_t{1} << 62;
  for (int i = 0; i < 3; ++i) {
    Put<int64_t>(const_cast<std::byte*>(pair.reference.data) + 8 * i, large);
    Put<int64_t>(const_cast<std::byte*>(pair.candidate.data) + 8 * i, large + i);
  }
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  CHECK(found.whole.failed == 2);
  CHECK(found.whole.max_abs == 2);
  CHECK(found.worst.at(0).ulps == 2);
}

TEST_CASE("a constant factor and offset are found") {
  Pair pair = RandomPair(DType::kFloat32, {1000}, 0);
  const ElementReader reference(pair.reference);
  for (int64_t i = 0; i < 1000; ++i)
    Set(pair.candidate, i, static_cast<float>(2 * reference.AtPosition(i).real() + 0.5));
  const Comparison found = Compare(pair.candidate, pair.reference, {});
  CHECK(found.whole.factor == Approx(2).epsilon(1e-6));
  CHECK(found.whole.offset == Approx(0.5).epsilon(1e-6));
  CHECK(found.whole.left_after_fit < 1e-6);
}

TEST_CASE("what cannot be compared is said") {
  const Pair pair = RandomPair(DType::kFloat32, {2, 3}, 0);
  Tensor other = pair.reference;
  other.shape = {3, 2};
  CHECK(Compare(other, pair.reference, {}).verdict.outcome == Outcome::kShapeMismatch);
  CHECK(Compare(other, pair.reference, {}).verdict.text ==
        "shapes differ: [3, 2] against [2, 3] of the reference");
  const Pair complex = RandomPair(DType::kComplex64, {2, 3}, 0);
  CHECK(Compare(complex.candidate, pair.reference, {}).verdict.outcome == Outcome::kDtypeMismatch);
  const Pair flags = RandomPair(DType::kBool, {2, 3}, 0);
  CHECK(Compare(flags.candidate, pair.reference, {}).verdict.outcome == Outcome::kDtypeMismatch);
  const Pair empty = RandomPair(DType::kFloat32, {2, 0}, 0);
  CHECK(Compare(empty.candidate, empty.reference, {}).verdict.outcome == Outcome::kNothingCompared);
  Pair nan = RandomPair(DType::kFloat32, {2}, 0);
  for (const Tensor* tensor : {&nan.candidate, &nan.reference}) {
    for (int i = 0; i < 2; ++i) Set(*tensor, i, std::numeric_limits<float>::quiet_NaN());
  }
  CHECK(Compare(nan.candidate, nan.reference, {}).verdict.outcome == Outcome::kNothingCompared);
}

TEST_CASE("failures at tiny references are told apart") {
  Pair pair = RandomPair(DType::kFloat32, {100}, 0);
  CompareOptions options;
  options.rtol = 1e-3;
  options.atol = 0;
  Set(pair.reference, 3, 1e-9f);
  Set(pair.candidate, 3, 2e-9f);
  Set(pair.reference, 4, 1);
  Set(pair.candidate, 4, 2);
  const Comparison found = Compare(pair.candidate, pair.reference, options);
  CHECK(found.whole.failed == 2);
  CHECK(found.verdict.failed_without_small == 1);
}

TEST_CASE("tolerances are those of torch.testing, the looser of two types") {
  CHECK(DefaultTolerance(DType::kFloat32, DType::kFloat64).rtol == 1.3e-6);
  CHECK(DefaultTolerance(DType::kFloat16, DType::kFloat64).rtol == 1e-3);
  CHECK(DefaultTolerance(DType::kBfloat16, DType::kFloat32).rtol == 1.6e-2);
  CHECK(DefaultTolerance(DType::kFloat64, DType::kFloat64).atol == 1e-7);
  CHECK(DefaultTolerance(DType::kInt32, DType::kInt32).rtol == 0);
}

}  // namespace
}  // namespace ops_debug::analysis
