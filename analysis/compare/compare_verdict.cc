// Tolerances: torch.testing.assert_close, "The following table displays the default rtol and atol".
// Formats of 8 bits, which are not in it, get their spacing at 1.
#include "analysis/compare/compare_verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace ops_debug::analysis {
namespace {

using proto::DType;

Tolerance DefaultOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return {0.125, 1e-3};
    case DType::kFloat8E5M2:
      return {0.25, 1e-3};
    case DType::kFloat16:
      return {1e-3, 1e-5};
    case DType::kBfloat16:
      return {1.6e-2, 1e-5};
    case DType::kTf32:
      return {1e-3, 1e-5};
    case DType::kFloat32:
    case DType::kComplex64:
      return {1.3e-6, 1e-5};
    case DType::kFloat64:
    case DType::kComplex128:
      return {1e-7, 1e-7};
    default:
      return {0, 0};
  }
}

// Below this a relative error says little: half of the digits of the type.
double SmallValueOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 0x1p-2;
    case DType::kFloat16:
    case DType::kTf32:
      return 0x1p-6;
    case DType::kBfloat16:
      return 0x1p-4;
    case DType::kFloat32:
    case DType::kComplex64:
      return 0x1p-12;
    case DType::kFloat64:
    case DType::kComplex128:
      return 0x1p-26;
    default:
      return 0;
  }
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Rounded up, so that it passes.
double RoundedUp(double value) {
  if (value <= 0) return 0;
  return std::nextafter(value * (1 + 1e-12), HUGE_VAL);
}

std::string PassText(const Comparison& out) {
  const WholeStatistics& whole = out.whole;
  if (whole.max_abs == 0 && whole.failed == 0 && out.candidate_dtype == out.reference_dtype)
    return "equal: all " + std::to_string(whole.count) + " elements";
  return "passes: all " + std::to_string(whole.count) + " elements are within rtol " +
         Number(out.verdict.used.rtol) + ", atol " + Number(out.verdict.used.atol);
}

std::string FailText(const Comparison& out, int64_t mismatches) {
  const WholeStatistics& whole = out.whole;
  const double share = 100.0 * static_cast<double>(whole.failed) / static_cast<double>(whole.count);
  std::string text = "fails: " + std::to_string(whole.failed) + " of " +
                     std::to_string(whole.count) + " elements (" + Number(share) +
                     " %) are not within rtol " + Number(out.verdict.used.rtol) + ", atol " +
                     Number(out.verdict.used.atol);
  if (mismatches > 0)
    text += "; " + std::to_string(mismatches) + " of them are NaN or infinite on one side only";
  return text;
}

}  // namespace

Tolerance DefaultTolerance(DType candidate, DType reference) {
  const Tolerance a = DefaultOf(candidate), b = DefaultOf(reference);
  return {std::max(a.rtol, b.rtol), std::max(a.atol, b.atol)};
}

void ChooseTolerance(const CompareOptions& options, Comparison* out) {
  Verdict& verdict = out->verdict;
  verdict.used = DefaultTolerance(out->candidate_dtype, out->reference_dtype);
  verdict.defaults = !options.rtol && !options.atol;
  if (options.rtol) verdict.used.rtol = *options.rtol;
  if (options.atol) verdict.used.atol = *options.atol;
  verdict.small_value =
      std::max(SmallValueOf(out->candidate_dtype), SmallValueOf(out->reference_dtype));
}

bool MayBeCompared(const proto::Tensor& candidate, const proto::Tensor& reference,
                   Comparison* out) {
  Verdict& verdict = out->verdict;
  if (candidate.shape != reference.shape) {
    verdict.outcome = Outcome::kShapeMismatch;
    verdict.text = "shapes differ: " + ShapeText(candidate.shape) + " against " +
                   ShapeText(reference.shape) + " of the reference";
    return false;
  }
  const bool bool_against_float =
      (candidate.dtype == DType::kBool) != (reference.dtype == DType::kBool) &&
      (proto::IsFloating(candidate.dtype) || proto::IsFloating(reference.dtype));
  if (IsComplex(candidate.dtype) != IsComplex(reference.dtype) || bool_against_float) {
    verdict.outcome = Outcome::kDtypeMismatch;
    verdict.text = std::string("types cannot be compared: ") + proto::Name(candidate.dtype) +
                   " against " + proto::Name(reference.dtype) + " of the reference";
    return false;
  }
  if (out->whole.count > 0) return true;
  verdict.outcome = Outcome::kNothingCompared;
  verdict.text = "nothing compared: the tensors hold no element";
  return false;
}

void Judge(const JudgedSums& sums, Comparison* out) {
  Verdict& verdict = out->verdict;
  const WholeStatistics& whole = out->whole;
  verdict.failed_without_small = whole.failed - sums.excused;
  if (sums.mismatches == 0) {
    if (sums.zero_reference <= verdict.used.atol)
      verdict.passing_rtol = RoundedUp(std::max(sums.passing_rtol, 0.0));
    verdict.passing_atol = RoundedUp(std::max(sums.over, 0.0));
  }
  if (whole.failed > 0) {
    verdict.outcome = Outcome::kFail;
    verdict.text = FailText(*out, sums.mismatches);
  } else if (whole.nan_both == whole.count) {
    verdict.outcome = Outcome::kNothingCompared;
    verdict.text =
        "nothing compared: all " + std::to_string(whole.count) + " elements are NaN on both sides";
  } else {
    verdict.outcome = Outcome::kPass;
    verdict.text = PassText(*out);
  }
}

}  // namespace ops_debug::analysis
