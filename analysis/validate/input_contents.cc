#include "analysis/validate/input_contents.h"

#include <absl/strings/numbers.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

constexpr std::array<std::string_view, 10> kWords = {
    "random", "positive", "zeros", "ones", "iota", "nan", "large", "tiny", "denormal", "mixed"};
constexpr std::string_view kIndex = "index:";
constexpr double kDefaultIntegers = 8;  // random integers are below it
constexpr uint64_t kOneNanIn = 64;

uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool ParseIndexLimit(const std::string& contents, double* limit) {
  return contents.starts_with(kIndex) && absl::SimpleAtod(contents.substr(kIndex.size()), limit) &&
         *limit >= 1;
}

// The powers of two that "mixed" spans on either side: half of what products can stand.
int MixedPower(proto::DType dtype) {
  return std::min(20, static_cast<int>(std::log2(LargestFinite(dtype)) / 3));
}

// Of a floating input.
double FloatElement(const std::string& contents, proto::DType dtype, double uniform, double other,
                    uint64_t element) {
  const double symmetric = 2 * uniform - 1;
  if (contents == "positive") return 1 - uniform;
  // The cube root: a product of two, summed up some thousand times, stays finite.
  if (contents == "large") return symmetric * std::cbrt(LargestFinite(dtype));
  if (contents == "tiny") return symmetric * SmallestNormal(dtype) * 1024;
  if (contents == "denormal") return symmetric * SmallestNormal(dtype) / 2;
  if (contents == "nan" && element % kOneNanIn == 1) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (contents == "mixed") {
    const int span = MixedPower(dtype);
    const int power = static_cast<int>(std::floor(other * (2 * span + 1))) - span;
    return std::ldexp(symmetric, power);
  }
  return symmetric;
}

}  // namespace

bool IsContents(const std::string& contents) {
  double number = 0;
  return std::find(kWords.begin(), kWords.end(), contents) != kWords.end() ||
         ParseIndexLimit(contents, &number) || absl::SimpleAtod(contents, &number);
}

double UniformAt(uint64_t seed, uint64_t stream, uint64_t element) {
  const uint64_t bits = Mixed(Mixed(Mixed(seed) ^ stream) + element);
  return std::ldexp(static_cast<double>(bits >> 11), -53);
}

std::vector<double> MakeContents(const InputPlan& input, uint64_t number, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t dimension : input.shape) count *= dimension;
  std::vector<double> values(static_cast<size_t>(std::max<int64_t>(count, 0)));
  double limit = kDefaultIntegers, constant = 0;
  const bool indexed = ParseIndexLimit(input.contents, &limit);
  const bool is_constant = absl::SimpleAtod(input.contents, &constant) && input.contents != "nan";
  const bool integers = indexed || !proto::IsFloating(input.dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_constant || input.contents == "zeros") {
      values[i] = constant;
    } else if (input.contents == "ones") {
      values[i] = 1;
    } else if (input.contents == "iota") {
      values[i] = static_cast<double>(i);
    } else if (integers) {
      values[i] = std::floor(UniformAt(seed, 2 * number, i) *
                             (input.dtype == proto::DType::kBool ? 2 : limit));
    } else {
      values[i] = FloatElement(input.contents, input.dtype, UniformAt(seed, 2 * number, i),
                               UniformAt(seed, 2 * number + 1, i), i);
    }
  }
  return values;
}

}  // namespace ops_debug::analysis
