// A fixed number of lanes share the units; threads take lanes until none is left. Everything that
// can be computed from sums is computed at the end.
#include "analysis/compare/compare.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "analysis/compare/compare_verdict.h"
#include "analysis/compare/exact_chunk.h"
#include "analysis/compare/sweep.h"

namespace ops_debug::analysis {
namespace {

constexpr int64_t kLanes = 16;  // each keeps sums of about 2 MiB
// Fewer elements than this are not worth another lane: its sums must be made, zeroed and merged.
constexpr int64_t kLeastPerLane = 1 << 21;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Ratio(double part, double whole) {
  if (part == 0) return 0;
  return whole == 0 ? kInfinity : part / whole;
}

SweepSums SweepAll(const SweepInputs& inputs, uint32_t threads) {
  const int64_t units = inputs.plan.rows * inputs.plan.blocks;
  const int64_t lanes = std::min({kLanes, units, inputs.plan.count / kLeastPerLane + 1});
  std::vector<std::unique_ptr<SweepSums>> sums(static_cast<size_t>(lanes));
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t lane = next++; lane < lanes; lane = next++) {
      auto& own = sums[static_cast<size_t>(lane)];
      own = std::make_unique<SweepSums>(inputs);
      Sweep(inputs, units * lane / lanes, units * (lane + 1) / lanes, own.get());
    }
  };
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1u);
  const int64_t useful = std::min(int64_t{threads}, lanes);
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < useful; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  for (size_t lane = 1; lane < sums.size(); ++lane) {
    sums[0]->Merge(*sums[lane]);
    sums[lane].reset();
  }
  return std::move(*sums[0]);
}

void FillWhole(const SweepSums& sums, Comparison* out) {
  const ChunkSums& from = sums.whole;
  WholeStatistics& to = out->whole;
  to.finite = from.finite;
  to.nan_candidate = from.nan_candidate;
  to.nan_reference = from.nan_reference;
  to.nan_both = from.nan_both;
  to.inf_candidate = from.inf_candidate;
  to.inf_reference = from.inf_reference;
  to.inf_both = from.inf_both;
  to.failed = from.failed;
  to.min_candidate = from.min_candidate;
  to.max_candidate = from.max_candidate;
  to.min_reference = from.min_reference;
  to.max_reference = from.max_reference;
  const auto n = static_cast<double>(std::max<int64_t>(from.finite, 1));
  to.mean_candidate = from.c / n;
  to.mean_reference = from.r / n;
  to.mean_error = from.d / n;
  to.l1 = from.abs_d;
  to.l2 = std::sqrt(from.dd);
  to.relative_l2 = Ratio(to.l2, std::sqrt(from.rr));
  to.max_abs = from.max_abs;
  to.rmse = to.l2 / std::sqrt(n);
  to.sqnr_db = from.dd == 0   ? kInfinity
               : from.rr == 0 ? -kInfinity
                              : 10 * std::log10(from.rr / from.dd);
  const double norms = std::sqrt(from.rr) * std::sqrt(from.cc);
  to.cosine =
      norms > 0 ? std::clamp((from.rr + from.dr) / norms, -1.0, 1.0) : (from.rr == from.cc ? 1 : 0);
  // The line d = (factor - 1) r + offset: its coefficients are small where the tensors agree, so
  // nothing cancels.
  const double variance = from.rr - from.r * from.r / n;
  const double covariance = from.dr - from.d * from.r / n;
  const double spread = from.dd - from.d * from.d / n;
  const double slope = variance > 1e-12 * from.rr ? covariance / variance : 0;
  to.factor = 1 + slope;
  to.offset = (from.d - slope * from.r) / n;
  to.left_after_fit =
      from.dd > 0 ? std::sqrt(std::max(spread - slope * covariance, 0.0) / from.dd) : 0;
}

void FillHistograms(const SweepSums& sums, Comparison* out) {
  for (size_t key = 0; key < sums.keys.size(); ++key) {
    const auto count = static_cast<int64_t>(sums.keys[key]);
    if (count == 0) continue;
    out->histograms.ulps[std::min<size_t>(key / kDecadeKeys, kUlpKeys - 1)] += count;
    out->histograms.decades[std::min<size_t>(key % kDecadeKeys, 19)] += count;
  }
  out->whole.equal = out->histograms.ulps[0];
}

Element ElementAt(const SweepInputs& inputs, const std::vector<int64_t>& shape, int64_t position,
                  ChunkValues* values) {
  inputs.reader.Read(position, 1, values);
  const ElementErrors errors = ErrorsOf(*values, 0, inputs.ulp_type);
  Element element;
  element.index.resize(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    element.index[axis] = position % shape[axis];
    position /= shape[axis];
  }
  element.candidate = values->real[0][0];
  element.reference = values->real[1][0];
  if (values->complex) {
    element.candidate_imag = values->imag[0][0];
    element.reference_imag = values->imag[1][0];
  }
  element.abs_error = errors.abs_error;
  element.rel_error = errors.finite ? Ratio(errors.abs_error, errors.magnitude) : kInfinity;
  element.ulps = errors.ulps;
  return element;
}

void FillWorst(const SweepInputs& inputs, const SweepSums& sums, uint32_t worst_count,
               Comparison* out) {
  ChunkValues values;
  const auto fill = [&](const WorstElements& from, std::vector<Element>* to) {
    for (const WorstElement& worst : from.kept()) {
      if (to->size() == worst_count) break;
      to->push_back(ElementAt(inputs, out->shape, worst.position, &values));
    }
  };
  fill(sums.worst, &out->worst);
  fill(sums.worst_relative, &out->worst_relative);
  // The lists of the fast kernels are ordered in float32.
  if (!out->worst_relative.empty()) out->whole.max_rel = out->worst_relative.front().rel_error;
}

void FillPlaces(const SweepPlan& plan, SweepSums* sums, Comparison* out) {
  out->heat = plan.heat;
  out->heat.cells = std::move(sums->heat);
  if (out->shape.empty()) return;
  for (size_t axis = 0; axis < plan.shape.size(); ++axis) {
    out->axes.push_back({.axis = static_cast<uint32_t>(axis),
                         .size = plan.shape[axis],
                         .bin = plan.channel_bins[axis],
                         .channels = std::move(sums->channels[axis]),
                         .ranked = {}});
  }
  out->grid = {.bins = plan.grid_sizes,
               .bin_sizes = plan.grid_bins,
               .squared_error = std::move(sums->grid_squared_error),
               .failed = std::move(sums->grid_failed)};
}

}  // namespace

Comparison Compare(const proto::Tensor& candidate, const proto::Tensor& reference,
                   const CompareOptions& options) {
  Comparison out;
  out.name = candidate.name.empty() ? reference.name : candidate.name;
  out.candidate_dtype = candidate.dtype;
  out.reference_dtype = reference.dtype;
  out.shape = reference.shape;
  out.whole.count = reference.ElementCount();
  ChooseTolerance(options, &out);
  if (!MayBeCompared(candidate, reference, &out)) return out;

  const SweepPlan plan = PlanSweep(reference.shape, options);
  const ChunkReader reader(candidate, reference);
  SweepInputs inputs{.plan = plan,
                     .reader = reader,
                     .limits = {},
                     .ulp_type = UlpType(candidate.dtype, reference.dtype),
                     .fast = FastKernelFor(candidate, reference),
                     .worst_count = options.worst_count};
  inputs.limits.rtol = out.verdict.used.rtol;
  inputs.limits.atol = out.verdict.used.atol;
  inputs.limits.small_value = out.verdict.small_value;
  inputs.limits.small_limit = inputs.limits.atol + inputs.limits.rtol * inputs.limits.small_value;
  SweepSums sums = SweepAll(inputs, options.threads);
  FillWhole(sums, &out);
  FillHistograms(sums, &out);
  FillWorst(inputs, sums, options.worst_count, &out);
  FillPlaces(plan, &sums, &out);
  Judge({.over = sums.whole.over,
         .passing_rtol = sums.passing_rtol,
         .zero_reference = sums.whole.zero_reference,
         .mismatches = sums.whole.mismatch,
         .excused = sums.whole.excused},
        &out);
  return out;
}

}  // namespace ops_debug::analysis
