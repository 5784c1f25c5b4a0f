// Ranks: the position of a value among all values of its type; the difference of two ranks is their
// distance in units in the last place (ULP).
#include "analysis/compare/exact_chunk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ops_debug::analysis {
namespace {

using proto::DType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  int mantissa_bits, least_exponent;  // of normal numbers
};
Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return {3, -6};
    case DType::kFloat8E5M2:
      return {2, -14};
    case DType::kFloat16:
      return {10, -14};
    case DType::kBfloat16:
      return {7, -126};
    case DType::kTf32:
      return {10, -126};
    case DType::kFloat32:
    case DType::kComplex64:
      return {23, -126};
    default:
      return {52, -1022};
  }
}

bool IsInteger(DType dtype) { return !proto::IsFloating(dtype); }

// Exponent of a finite number; -1023 for 0 and subnormal ones.
int Exponent(double magnitude) {
  return static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52 & 0x7ff) - 1023;
}
double PowerOfTwo(int exponent) {  // of normal numbers
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// The value is rounded to the format first. As whole numbers: those of float64 need all 64 bits.
int64_t Rank(Format format, double value) {
  const double magnitude = std::abs(value);
  int64_t rank = 0;
  if (format.mantissa_bits == 52) {
    rank = std::bit_cast<int64_t>(magnitude);
  } else {
    const int exponent = std::max(Exponent(magnitude), format.least_exponent);
    // In two factors: one alone may be no number. 2^52 leaves no fraction.
    const double steps = magnitude * PowerOfTwo(-exponent / 2) *
                         PowerOfTwo(format.mantissa_bits - exponent - -exponent / 2);
    const auto rounded = static_cast<int64_t>(steps + 0x1p52 - 0x1p52);
    rank = (int64_t{exponent - format.least_exponent} << format.mantissa_bits) + rounded;
  }
  return value < 0 ? -rank : rank;
}

double Ulps(DType type, double candidate, double reference, double difference) {
  if (difference == 0) return 0;
  if (IsInteger(type)) return std::abs(difference);
  const Format format = FormatOf(type);
  const int64_t c = Rank(format, candidate), r = Rank(format, reference);
  return static_cast<double>(c > r ? static_cast<uint64_t>(c) - static_cast<uint64_t>(r)
                                   : static_cast<uint64_t>(r) - static_cast<uint64_t>(c));
}

// Histograms::decades of a ratio above 0: the exponent says the decade that its binade begins in,
// a comparison whether the ratio has reached the next.
int Decade(double ratio) {
  static constexpr double kPowers[] = {1e-17, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11,
                                       1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,
                                       1e-3,  1e-2,  1e-1,  1e0,   1e1,   1e2};
  const int begin = std::clamp(Exponent(ratio), -58, 5) * 1233 >> 12;
  return std::clamp(begin + 18 + (ratio >= kPowers[begin + 18]), 1, 19);
}

// std::hypot costs ten times as much; only near the ends of float64 it is needed.
double Modulus(double real, double imag) {
  const double square = real * real + imag * imag;
  return square > 1e-280 && square < 1e300 ? std::sqrt(square) : std::hypot(real, imag);
}

double Side(const ChunkValues& values, int side, int64_t i, double* imag) {
  const auto at = static_cast<size_t>(i);
  *imag = values.complex ? values.imag[side][at] : 0;
  return values.real[side][at];
}

bool IsFinite(double real, double imag) { return std::isfinite(real) && std::isfinite(imag); }
bool IsNan(double real, double imag) { return std::isnan(real) || std::isnan(imag); }

void AddSums(double c, double c_imag, double r, double r_imag, const ElementErrors& errors,
             ChunkSums* sums) {
  const bool first = sums->finite == 0;
  ++sums->finite;
  sums->d += c - r;
  sums->abs_d += errors.abs_error;
  sums->dd += errors.abs_error * errors.abs_error;
  sums->r += r;
  sums->c += c;
  sums->rr += r * r + r_imag * r_imag;
  sums->cc += c * c + c_imag * c_imag;
  sums->dr += (c - r) * r + (c_imag - r_imag) * r_imag;
  sums->max_abs = std::max(sums->max_abs, errors.abs_error);
  sums->min_candidate = first ? c : std::min(sums->min_candidate, c);
  sums->max_candidate = first ? c : std::max(sums->max_candidate, c);
  sums->min_reference = first ? r : std::min(sums->min_reference, r);
  sums->max_reference = first ? r : std::max(sums->max_reference, r);
}

}  // namespace

DType UlpType(DType candidate, DType reference) {
  if (IsInteger(candidate) != IsInteger(reference))
    return IsInteger(candidate) ? reference : candidate;
  if (IsInteger(candidate)) return candidate;
  const int bits[] = {FormatOf(candidate).mantissa_bits, FormatOf(reference).mantissa_bits};
  return bits[0] <= bits[1] ? candidate : reference;
}

ElementErrors ErrorsOf(const ChunkValues& values, int64_t i, DType ulp_type) {
  double c_imag = 0, r_imag = 0;
  const double c = Side(values, 0, i, &c_imag), r = Side(values, 1, i, &r_imag);
  ElementErrors errors;
  errors.finite = IsFinite(c, c_imag) && IsFinite(r, r_imag);
  if (!errors.finite) {
    const bool both_nan = IsNan(c, c_imag) && IsNan(r, r_imag);
    errors.mismatch = !both_nan && !(c == r && c_imag == r_imag);
    errors.abs_error = errors.mismatch ? kInfinity : 0;
    errors.ulps = errors.abs_error;
    return errors;
  }
  errors.difference = values.difference[static_cast<size_t>(i)];
  errors.abs_error = std::abs(errors.difference);
  errors.magnitude = std::abs(r);
  errors.ulps = Ulps(ulp_type, c, r, errors.difference);
  if (values.complex) {
    errors.abs_error = Modulus(c - r, c_imag - r_imag);
    errors.magnitude = Modulus(r, r_imag);
    errors.ulps = std::max(errors.ulps, Ulps(ulp_type, c_imag, r_imag, c_imag - r_imag));
  }
  return errors;
}

uint32_t KeyOf(const ElementErrors& errors) {
  constexpr int kLastUlps = kUlpKeys - 1, kLastDecade = 19;
  if (errors.mismatch) return kLastUlps * kDecadeKeys + kLastDecade;
  const int ulps =
      errors.ulps < 1 ? (errors.ulps > 0 ? 1 : 0) : std::min(1 + Exponent(errors.ulps), kLastUlps);
  const int decade = errors.abs_error > 0 ? Decade(errors.abs_error / errors.magnitude) : 0;
  return static_cast<uint32_t>(ulps * kDecadeKeys + decade);
}

void AddExactChunk(const ChunkValues& values, int64_t count, DType ulp_type,
                   const ChunkLimits& limits, const ColumnSums& columns, uint32_t* keys,
                   ChunkSums* sums) {
  for (int64_t i = 0; i < count; ++i) {
    double c_imag = 0, r_imag = 0;
    const double c = Side(values, 0, i, &c_imag), r = Side(values, 1, i, &r_imag);
    const ElementErrors errors = ErrorsOf(values, i, ulp_type);
    ++keys[KeyOf(errors)];
    bool fails = errors.mismatch;
    if (errors.finite) {
      AddSums(c, c_imag, r, r_imag, errors, sums);
      const double over = errors.abs_error - limits.rtol * errors.magnitude;
      sums->over = std::max(sums->over, over);
      if (errors.magnitude == 0)
        sums->zero_reference = std::max(sums->zero_reference, errors.abs_error);
      fails = over > limits.atol;
      if (fails && errors.magnitude < limits.small_value && errors.abs_error <= limits.small_limit)
        ++sums->excused;
    } else {
      const bool c_nan = IsNan(c, c_imag), r_nan = IsNan(r, r_imag);
      const bool c_inf = !c_nan && !IsFinite(c, c_imag), r_inf = !r_nan && !IsFinite(r, r_imag);
      sums->nan_candidate += c_nan;
      sums->nan_reference += r_nan;
      sums->nan_both += c_nan && r_nan;
      sums->inf_candidate += c_inf;
      sums->inf_reference += r_inf;
      sums->inf_both += c_inf && r_inf && !errors.mismatch;
      sums->mismatch += errors.mismatch;
    }
    sums->failed += fails;
    if (columns.failed == nullptr) continue;
    columns.failed[i] += fails;
    if (errors.finite) columns.squared_error[i] += errors.abs_error * errors.abs_error;
    if (IsFinite(r, r_imag)) columns.squared_reference[i] += r * r + r_imag * r_imag;
    columns.max_abs[i] = std::max(columns.max_abs[i], errors.abs_error);
  }
}

}  // namespace ops_debug::analysis
