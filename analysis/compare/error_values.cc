#include "analysis/compare/error_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

namespace ops_debug::analysis {
namespace {

constexpr double kLeastAgreeing = 0.9;
constexpr size_t kLeastElements = 8;
// Of the difference's L2 after the fit: a tenth is 1 % of the squared error.
constexpr double kMostLeft = 0.3;

std::string FactorName(double factor, const std::vector<int64_t>& shape) {
  std::vector<std::pair<double, std::string>> known = {
      {2, ""},
      {0.5, ""},
      {4, ""},
      {0.25, ""},
      {std::numbers::log2e, "log2(e): exp2 and exp mixed up"},
      {std::numbers::ln2, "ln(2): exp2 and exp mixed up"},
      {std::numbers::sqrt2, "sqrt(2)"},
      {1 / std::numbers::sqrt2, "1 / sqrt(2)"},
  };
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const auto n = static_cast<double>(shape[axis]);
    if (n < 2) continue;
    const std::string size = std::to_string(shape[axis]);
    const std::string of = ", the size of dim " + std::to_string(axis);
    known.emplace_back(n, size + of);
    known.emplace_back(1 / n, "1 / " + size + of);
    known.emplace_back(std::sqrt(n), "sqrt(" + size + ")" + of);
    known.emplace_back(1 / std::sqrt(n), "1 / sqrt(" + size + ")" + of);
    known.emplace_back(n / (n - 1), size + " / " + std::to_string(shape[axis] - 1) + of);
    known.emplace_back((n - 1) / n, std::to_string(shape[axis] - 1) + " / " + size + of);
  }
  for (const auto& [value, name] : known) {
    const double distance = std::abs(std::abs(factor) - value);
    if (distance <= 1e-4 * value && distance <= 0.1 * std::abs(value - 1)) {
      return name.empty() ? "" : " (" + name + ")";
    }
  }
  return "";
}

FoundPattern ValuePattern(const char* kind, std::string text, std::string evidence,
                          double explained) {
  FoundPattern pattern;
  pattern.family = PatternFamily::kValue;
  pattern.hint = {kind, std::move(text), std::move(evidence), explained};
  pattern.explained = explained;
  return pattern;
}

std::string Signed(double value) {
  return (value < 0 ? " - " : " + ") + NumberText(std::abs(value));
}

// From candidate = factor * reference + offset over all elements.
std::optional<FoundPattern> OfAll(const Comparison& comparison) {
  const WholeStatistics& whole = comparison.whole;
  if (whole.finite < static_cast<int64_t>(kLeastElements) || !(whole.l2 > 0) ||
      !std::isfinite(whole.l2) || !std::isfinite(whole.factor) || !std::isfinite(whole.offset) ||
      !(whole.left_after_fit <= kMostLeft)) {
    return std::nullopt;
  }
  // What each alone accounts for, of the squared difference.
  const auto count = static_cast<double>(whole.finite);
  const double squared = whole.l2 * whole.l2;
  const double by_offset = whole.offset * whole.offset * count / squared;
  const double reference_l2 =
      whole.relative_l2 > 0 && std::isfinite(whole.relative_l2) ? whole.l2 / whole.relative_l2 : 0;
  const double by_factor =
      (whole.factor - 1) * (whole.factor - 1) * reference_l2 * reference_l2 / squared;
  const double explained = 1 - whole.left_after_fit * whole.left_after_fit;
  const std::string evidence = PercentText(explained) +
                               " of the squared error is gone after the fit (left " +
                               NumberText(whole.left_after_fit) + " of its L2)";
  // A reference that hardly varies cannot tell a factor from an offset.
  if (whole.max_reference - whole.min_reference <=
      1e-3 * std::max(std::abs(whole.max_reference), std::abs(whole.min_reference))) {
    return ValuePattern("offset",
                        "the candidate is the reference" + Signed(whole.mean_error) +
                            " (of a reference that is the same everywhere)",
                        evidence, explained);
  }
  const std::string factor = NumberText(whole.factor) + FactorName(whole.factor, comparison.shape) +
                             " times the reference";
  if (std::abs(whole.factor) * reference_l2 <= 1e-6 * reference_l2) {
    return std::nullopt;  // a constant: OfSample tells zeros and others apart
  }
  if (by_offset <= 0.02) {
    if (std::abs(whole.factor + 1) <= 1e-4) {
      return ValuePattern("sign", "the sign is flipped everywhere", evidence, explained);
    }
    return ValuePattern("factor", "the candidate is " + factor, evidence, explained);
  }
  if (by_factor <= 0.02) {
    return ValuePattern("offset", "the candidate is the reference" + Signed(whole.offset), evidence,
                        explained);
  }
  return ValuePattern("factor", "the candidate is " + factor + Signed(whole.offset), evidence,
                      explained);
}

// How much of the sample agrees with a predicate.
class Sample {
 public:
  Sample(const Comparison& comparison, const std::vector<FailingElement>& failing)
      : comparison_(comparison) {
    for (const FailingElement& element : failing) {
      if (std::isfinite(std::abs(element.reference))) elements_.push_back(&element);
    }
  }

  std::optional<FoundPattern> Find() const {
    if (elements_.size() < 4) return std::nullopt;
    for (const auto find : {&Sample::Zeros, &Sample::Constant, &Sample::Sign, &Sample::Conjugate,
                            &Sample::Factor, &Sample::Offset}) {
      if (auto found = (this->*find)()) return found;
    }
    return std::nullopt;
  }

 private:
  template <class Predicate>
  double Share(const Predicate& holds) const {
    const auto count =
        std::count_if(elements_.begin(), elements_.end(),
                      [&](const FailingElement* element) { return holds(*element); });
    return static_cast<double>(count) / static_cast<double>(elements_.size());
  }
  std::string Evidence(double share) const {
    return PercentText(share) + " of " + std::to_string(elements_.size()) +
           " failing elements looked at";
  }
  template <class Value>
  double Median(const Value& value) const {
    std::vector<double> values;
    for (const FailingElement* element : elements_) {
      const double v = value(*element);
      if (std::isfinite(v)) values.push_back(v);
    }
    if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }
  bool ReferencesDiffer() const {
    const double median = Median([](const FailingElement& e) { return e.reference.real(); });
    return Share([&](const FailingElement& e) {
             return std::abs(e.reference.real() - median) <= 1e-3 * std::abs(median);
           }) < 0.5;
  }

  std::optional<FoundPattern> Zeros() const {
    const double share = Share([](const FailingElement& e) { return e.candidate == 0.0; });
    if (share < kLeastAgreeing || comparison_.candidate_dtype == proto::DType::kBool) {
      return std::nullopt;
    }
    return ValuePattern("zeros", "where it fails the candidate is 0: not written, or masked away",
                        Evidence(share), share);
  }

  std::optional<FoundPattern> Constant() const {
    if (elements_.size() < kLeastElements || !ReferencesDiffer()) return std::nullopt;
    const double value = Median([](const FailingElement& e) { return e.candidate.real(); });
    const double share =
        Share([&](const FailingElement& e) { return e.candidate.real() == value; });
    if (share < kLeastAgreeing) return std::nullopt;
    const double beyond = Share([&](const FailingElement& e) {
      return value > 0 ? e.reference.real() > value : e.reference.real() < value;
    });
    std::string text = "where it fails the candidate is always " + NumberText(value);
    if (beyond >= kLeastAgreeing) text += ", where the reference lies beyond: clamped or saturated";
    return ValuePattern("constant", text, Evidence(share), share);
  }

  std::optional<FoundPattern> Sign() const {
    const double share = Share([](const FailingElement& e) {
      return std::abs(e.candidate + e.reference) <= 1e-2 * std::abs(e.candidate - e.reference);
    });
    if (share < kLeastAgreeing || elements_.size() < kLeastElements) return std::nullopt;
    return ValuePattern("sign", "where it fails the sign is flipped", Evidence(share), share);
  }

  std::optional<FoundPattern> Conjugate() const {
    const double share = Share([](const FailingElement& e) {
      return std::abs(e.candidate - std::conj(e.reference)) <=
             1e-2 * std::abs(e.candidate - e.reference);
    });
    if (share < kLeastAgreeing || elements_.size() < kLeastElements) return std::nullopt;
    return ValuePattern("sign", "where it fails the candidate is the conjugate of the reference",
                        Evidence(share), share);
  }

  std::optional<FoundPattern> Factor() const {
    if (elements_.size() < kLeastElements || !ReferencesDiffer()) return std::nullopt;
    const double factor = Median([](const FailingElement& e) {
      return (e.candidate * std::conj(e.reference)).real() / std::norm(e.reference);
    });
    if (!std::isfinite(factor) || factor == 0) return std::nullopt;
    const double share = Share([&](const FailingElement& e) {
      return std::abs(e.candidate - factor * e.reference) <=
             0.05 * std::abs(e.candidate - e.reference);
    });
    if (share < kLeastAgreeing) return std::nullopt;
    return ValuePattern("factor",
                        "where it fails the candidate is " + NumberText(factor) +
                            FactorName(factor, comparison_.shape) + " times the reference",
                        Evidence(share), share);
  }

  std::optional<FoundPattern> Offset() const {
    if (elements_.size() < kLeastElements || !ReferencesDiffer()) return std::nullopt;
    const double offset =
        Median([](const FailingElement& e) { return (e.candidate - e.reference).real(); });
    const double share = Share([&](const FailingElement& e) {
      return std::abs(e.candidate - e.reference - offset) <= 0.02 * std::abs(offset);
    });
    if (share < kLeastAgreeing || comparison_.candidate_dtype == proto::DType::kBool) {
      return std::nullopt;
    }
    return ValuePattern("offset", "where it fails the candidate is the reference" + Signed(offset),
                        Evidence(share), share);
  }

  const Comparison& comparison_;
  std::vector<const FailingElement*> elements_;
};

std::optional<FoundPattern> NotFinite(const WholeStatistics& whole) {
  const int64_t one_sided = NotFiniteOnOneSide(whole);
  if (one_sided == 0 || 2 * one_sided < whole.failed) return std::nullopt;
  const int64_t nan = whole.nan_candidate - whole.nan_both;
  const int64_t infinite = whole.inf_candidate - whole.inf_both;
  const int64_t missing = whole.nan_reference - whole.nan_both;
  std::string text;
  if (nan >= infinite && nan >= missing) {
    text = "the candidate is NaN where the reference is not";
  } else if (infinite >= missing) {
    text = "the candidate is infinite where the reference is not";
  } else {
    text = "the reference is NaN where the candidate is not";
  }
  const double share =
      std::min(1.0, static_cast<double>(one_sided) / static_cast<double>(whole.failed));
  return ValuePattern("not-finite", text,
                      std::to_string(nan) + " NaN and " + std::to_string(infinite) +
                          " infinite elements in the candidate alone, " + std::to_string(missing) +
                          " NaN in the reference alone",
                      share);
}

bool FewBits(double value, int bits) {
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(value, &exponent), bits);
  return scaled == std::floor(scaled);
}

// The candidate's values carry fewer bits than the reference's: rounded through a smaller type.
std::optional<FoundPattern> Rounded(const Comparison& comparison,
                                    const std::vector<FailingElement>& failing) {
  const auto wide = [](proto::DType dtype) {
    return dtype == proto::DType::kFloat32 || dtype == proto::DType::kFloat64;
  };
  if (!wide(comparison.candidate_dtype) || !wide(comparison.reference_dtype)) return std::nullopt;
  if (failing.size() < 2 * kLeastElements) return std::nullopt;
  for (const auto& [bits, name] :
       {std::pair{8, "bfloat16"}, {11, "float16 or tf32"}, {24, "float32"}}) {
    int64_t candidate = 0, reference = 0, within = 0;
    for (const FailingElement& element : failing) {
      const double value = element.candidate.real(), expected = element.reference.real();
      candidate += FewBits(value, bits) ? 1 : 0;
      reference += FewBits(expected, bits) ? 1 : 0;
      // Two roundings' worth.
      within += std::abs(value - expected) <= std::ldexp(std::abs(expected), 1 - bits) ? 1 : 0;
    }
    const auto count = static_cast<double>(failing.size());
    if (static_cast<double>(candidate) < 0.99 * count ||
        static_cast<double>(reference) > 0.5 * count ||
        static_cast<double>(within) < kLeastAgreeing * count) {
      continue;
    }
    const double share = static_cast<double>(within) / count;
    return ValuePattern("rounded",
                        std::string("the candidate was rounded through ") + name +
                            ": its values have " + std::to_string(bits) + " significant bits",
                        PercentText(static_cast<double>(candidate) / count) + " of " +
                            std::to_string(failing.size()) +
                            " failing elements, of the reference " +
                            PercentText(static_cast<double>(reference) / count),
                        share);
  }
  return std::nullopt;
}

}  // namespace

std::vector<FoundPattern> FindValuePatterns(const Comparison& comparison,
                                            const std::vector<FailingElement>& failing) {
  std::vector<FoundPattern> found;
  if (auto not_finite = NotFinite(comparison.whole)) {
    found.push_back(*std::move(not_finite));
    return found;
  }
  std::optional<FoundPattern> value = OfAll(comparison);
  if (value) value->everywhere = true;
  if (!value) value = Rounded(comparison, failing);
  if (!value) value = Sample(comparison, failing).Find();
  if (value) found.push_back(*std::move(value));
  return found;
}

}  // namespace ops_debug::analysis
