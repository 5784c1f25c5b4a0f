// Comparisons with every part filled, as the tests of reports show them; written by hand, so that
// they need no engine.
#pragma once

#include <cmath>
#include <string>

#include "analysis/compare/report_data.h"

namespace ops_debug::analysis {

// A float16 tensor of 8 x 64 x 56 x 56 whose channel 16 is off. `error` is its largest absolute
// error; 0: equal.
inline Comparison SampleComparison(const std::string& name, double error) {
  Comparison comparison;
  comparison.name = name;
  comparison.candidate_dtype = proto::DType::kFloat16;
  comparison.reference_dtype = proto::DType::kFloat32;
  comparison.shape = {8, 64, 56, 56};
  WholeStatistics& whole = comparison.whole;
  whole.count = whole.finite = 8 * 64 * 56 * 56;
  whole.min_candidate = whole.min_reference = -3.25;
  whole.max_candidate = whole.max_reference = 3.5;
  whole.relative_l2 = error / 3;
  whole.max_abs = error;
  whole.max_rel = error * 1.5;
  whole.cosine = 1 - error * error;
  whole.sqnr_db = error > 0 ? -20 * std::log10(error / 3) : INFINITY;
  const bool fails = error > 1e-2;
  whole.failed = fails ? 25088 : 0;
  whole.equal = error > 0 ? whole.count / 2 : whole.count;
  comparison.verdict.outcome = fails ? Outcome::kFail : Outcome::kPass;
  comparison.verdict.text = fails ? "25088 of 1605632 elements (1.56 %) are off" : "all agree";
  comparison.verdict.used = {1e-3, 1e-5};
  comparison.histograms.ulps[0] = whole.equal;
  if (error == 0) return comparison;

  comparison.verdict.passing_rtol = error * 1.5;
  for (int i = 0; i < 10; ++i) {
    Element element;
    element.index = {i % 8, 16, 5 * i, 56 - 5 * i - 1};
    element.candidate = 1.23456789 + i;
    element.reference = element.candidate + error;
    element.abs_error = error / (1 + 0.1 * i);
    element.rel_error = error * 1.5 / (1 + 0.1 * i);
    element.ulps = 1024 / (1 + 0.1 * i);
    comparison.worst.push_back(element);
    comparison.worst_relative.push_back(element);
  }
  for (int i = 1; i < 12; ++i) comparison.histograms.ulps[i] = whole.count >> (i + 1);
  for (int i = 5; i < 17; ++i) comparison.histograms.decades[i] = whole.count / (i * i);

  HeatMap& heat = comparison.heat;
  heat.rows = 32;
  heat.columns = 56;
  heat.tile_rows = 896;
  heat.tile_columns = 1;
  heat.folded_shape = {8 * 64 * 56, 56};
  heat.axes = "dims 0,1,2 x dim 3";
  for (uint32_t row = 0; row < heat.rows; ++row) {
    for (uint32_t column = 0; column < heat.columns; ++column) {
      const bool carries = row % 4 == 1;
      heat.cells.push_back((carries ? error : error * 1e-4) * (0.5 + 0.5 * column / 55.0));
    }
  }
  for (uint32_t axis = 0; axis < 4; ++axis) {
    Axis one;
    one.axis = axis;
    one.size = comparison.shape[axis];
    one.explained = axis == 1 ? 0.93 : 0.01;
    for (int64_t i = 0; i < one.size; ++i) {
      const bool carries = axis == 1 && i == 16;
      one.channels.push_back({i, carries ? 1.0 : 0.001 * std::sin(i) * std::sin(i), 2.0,
                              carries ? error : error * 0.01, carries ? 25088 : 0, 25088});
    }
    if (axis == 1) one.ranked = {16};
    comparison.axes.push_back(std::move(one));
  }
  for (int term = 0; term < 3; ++term) {
    RankOneTerm one;
    one.weight = error / (1 + term);
    one.explained = 0.9 / (1 + 9 * term);
    for (uint32_t axis = 0; axis < 4; ++axis) {
      RankOneTerm::Factor factor;
      factor.axis = axis;
      for (int64_t i = 0; i < comparison.shape[axis]; ++i) {
        factor.values.push_back(std::abs(std::sin(0.37 * (i + 1) * (term + 1))));
      }
      if (axis == 1) factor.peaks = {16};
      one.factors.push_back(std::move(factor));
    }
    comparison.terms.push_back(std::move(one));
  }
  if (fails) {
    comparison.patterns.push_back({"channel", "channel 16 of dim 1 carries the error.",
                                   "98.2 % of the squared error in 1.6 % of the elements", 0.95});
  }
  return comparison;
}

// `layers` pairs whose error grows; from the last quarter on they fail.
inline DiffReport SampleReport(int layers) {
  DiffReport report;
  report.title = "run-a against run-b";
  report.candidate = "run-a.npz";
  report.reference = "run-b.npz";
  for (int i = 0; i < layers; ++i) {
    const double place = layers > 1 ? static_cast<double>(i) / (layers - 1) : 1;
    const std::string name = "layer" + std::to_string(i) + ".conv";
    const double error = i == 0 ? 0 : std::pow(10, -6 + 5.2 * place);
    report.pairs.push_back(
        {name, name + ".weight", name + ".weight", SampleComparison(name, error)});
    if (error > 1e-2 && report.first_divergence < 0) {
      report.first_divergence = i;
      report.passes = false;
    }
  }
  return report;
}

// Every outcome there is, and numbers that JSON cannot write.
inline DiffReport OutcomesReport() {
  DiffReport report = SampleReport(4);
  report.remarks = {"tensor 'extra' is only in run-a.npz"};
  const auto add = [&](const std::string& name, Outcome outcome) -> Comparison& {
    ComparedPair pair;
    pair.tag = pair.candidate = pair.reference = name;
    pair.comparison.name = name;
    pair.comparison.shape = {2, 3};
    pair.comparison.verdict.outcome = outcome;
    pair.comparison.verdict.text = "said of " + name;
    report.pairs.push_back(std::move(pair));
    return report.pairs.back().comparison;
  };
  add("of another shape", Outcome::kShapeMismatch);
  add("of another dtype", Outcome::kDtypeMismatch).reference_dtype = proto::DType::kComplex64;
  add("all NaN", Outcome::kNothingCompared).whole.nan_both = 6;
  add("only on one side", Outcome::kFail);
  report.pairs.back().reference.clear();

  Comparison broken = SampleComparison("infinite", 0.5);
  broken.whole.max_abs = broken.whole.max_rel = broken.whole.relative_l2 = INFINITY;
  broken.whole.cosine = broken.whole.mean_candidate = NAN;
  broken.worst[0].candidate = -INFINITY;
  broken.worst[0].ulps = broken.worst[0].abs_error = INFINITY;
  broken.heat.cells[100] = INFINITY;
  broken.heat.cells[101] = 0;
  broken.axes[1].channels[7].max_abs = INFINITY;
  broken.histograms.ulps[33] = 1;
  report.pairs.push_back({"infinite", "infinite", "infinite", broken});

  Comparison scalar = SampleComparison("scalar", 0.25);
  scalar.shape.clear();
  scalar.axes.clear();
  scalar.terms.clear();
  scalar.heat = HeatMap{1, 1, 1, 1, {1, 1}, "all", {0.25}};
  for (Element& element : scalar.worst) element.index.clear();
  report.pairs.push_back({"scalar", "scalar", "scalar", scalar});
  return report;
}

}  // namespace ops_debug::analysis
