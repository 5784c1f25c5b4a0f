#include "analysis/compare/comparison_json.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json Number(const std::optional<double>& value) { return value ? Number(*value) : Json(nullptr); }

// Long arrays are for looking at, not for computing with: four digits.
Json Short(double value) {
  if (!std::isfinite(value) || value == 0) return Number(value);
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  const double rounded = std::round(value * scale) / scale;
  return Number(std::isfinite(rounded) ? rounded : value);
}

template <class Values>
Json ShortArray(const Values& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(Short(value));
  return array;
}

Json ToJson(const Verdict& verdict) {
  Json json;
  json["outcome"] = OutcomeName(verdict.outcome);
  json["text"] = verdict.text;
  json["rtol"] = Number(verdict.used.rtol);
  json["atol"] = Number(verdict.used.atol);
  json["default_tolerance"] = verdict.defaults;
  json["passing_rtol"] = Number(verdict.passing_rtol);
  json["passing_atol"] = Number(verdict.passing_atol);
  json["small_value"] = Number(verdict.small_value);
  json["failed_without_small"] = verdict.failed_without_small;
  if (verdict.dual_ratio) json["dual_ratio"] = Number(*verdict.dual_ratio);
  return json;
}

Json ToJson(const WholeStatistics& whole) {
  Json json;
  json["count"] = whole.count;
  json["finite"] = whole.finite;
  json["equal"] = whole.equal;
  json["failed"] = whole.failed;
  json["nan_candidate"] = whole.nan_candidate;
  json["nan_reference"] = whole.nan_reference;
  json["nan_both"] = whole.nan_both;
  json["inf_candidate"] = whole.inf_candidate;
  json["inf_reference"] = whole.inf_reference;
  json["inf_both"] = whole.inf_both;
  json["min_candidate"] = Number(whole.min_candidate);
  json["max_candidate"] = Number(whole.max_candidate);
  json["mean_candidate"] = Number(whole.mean_candidate);
  json["min_reference"] = Number(whole.min_reference);
  json["max_reference"] = Number(whole.max_reference);
  json["mean_reference"] = Number(whole.mean_reference);
  json["l1"] = Number(whole.l1);
  json["l2"] = Number(whole.l2);
  json["relative_l2"] = Number(whole.relative_l2);
  json["cosine"] = Number(whole.cosine);
  json["sqnr_db"] = Number(whole.sqnr_db);
  json["max_abs"] = Number(whole.max_abs);
  json["max_rel"] = Number(whole.max_rel);
  json["rmse"] = Number(whole.rmse);
  json["mean_error"] = Number(whole.mean_error);
  json["factor"] = Number(whole.factor);
  json["offset"] = Number(whole.offset);
  json["left_after_fit"] = Number(whole.left_after_fit);
  return json;
}

Json ToJson(const std::vector<Element>& elements, bool complex) {
  Json array = Json::array();
  for (const Element& element : elements) {
    Json json;
    json["index"] = element.index;
    json["candidate"] = Number(element.candidate);
    json["reference"] = Number(element.reference);
    if (complex) {
      json["candidate_imag"] = Number(element.candidate_imag);
      json["reference_imag"] = Number(element.reference_imag);
    }
    json["abs_error"] = Number(element.abs_error);
    json["rel_error"] = Number(element.rel_error);
    json["ulps"] = Number(element.ulps);
    array.push_back(std::move(json));
  }
  return array;
}

Json ToJson(const HeatMap& heat) {
  Json json;
  json["rows"] = heat.rows;
  json["columns"] = heat.columns;
  json["tile_rows"] = heat.tile_rows;
  json["tile_columns"] = heat.tile_columns;
  json["folded_shape"] = heat.folded_shape;
  json["axes"] = heat.axes;
  json["cells"] = ShortArray(heat.cells);
  return json;
}

// Neighbours added up until at most kMostChannelsInJson are left; returns how many became one.
size_t Merge(const std::vector<Channel>& channels, std::vector<Channel>* merged) {
  const size_t step =
      std::max<size_t>((channels.size() + kMostChannelsInJson - 1) / kMostChannelsInJson, 1);
  for (size_t i = 0; i < channels.size(); ++i) {
    if (i % step == 0) {
      merged->push_back(channels[i]);
      continue;
    }
    Channel& sum = merged->back();
    sum.squared_error += channels[i].squared_error;
    sum.squared_reference += channels[i].squared_reference;
    sum.max_abs = std::max(sum.max_abs, channels[i].max_abs);
    sum.failed += channels[i].failed;
    sum.count += channels[i].count;
  }
  return step;
}

Json ToJson(const Axis& axis) {
  Json json;
  json["axis"] = axis.axis;
  json["size"] = axis.size;
  json["explained"] = Number(axis.explained);
  json["ranked"] = Json::array();
  for (const uint32_t position : axis.ranked) {
    if (position >= axis.channels.size()) continue;
    const Channel& channel = axis.channels[position];
    Json ranked;
    ranked["index"] = channel.index;
    ranked["bin"] = axis.bin;
    ranked["squared_error"] = Number(channel.squared_error);
    ranked["squared_reference"] = Number(channel.squared_reference);
    ranked["max_abs"] = Number(channel.max_abs);
    ranked["failed"] = channel.failed;
    ranked["count"] = channel.count;
    json["ranked"].push_back(std::move(ranked));
  }
  std::vector<Channel> merged;
  const size_t step = Merge(axis.channels, &merged);
  json["bin"] = axis.bin * static_cast<int64_t>(step);
  const char* const kColumns[] = {"index", "squared_error", "max_abs", "failed", "count"};
  Json& channels = json["channels"];
  for (const char* column : kColumns) channels[column] = Json::array();
  for (const Channel& channel : merged) {
    channels["index"].push_back(channel.index);
    channels["squared_error"].push_back(Short(channel.squared_error));
    channels["max_abs"].push_back(Short(channel.max_abs));
    channels["failed"].push_back(channel.failed);
    channels["count"].push_back(channel.count);
  }
  return json;
}

Json ToJson(const RankOneTerm& term) {
  Json json;
  json["weight"] = Number(term.weight);
  json["explained"] = Number(term.explained);
  json["factors"] = Json::array();
  for (const RankOneTerm::Factor& factor : term.factors) {
    Json entry;
    entry["axis"] = factor.axis;
    entry["bin"] = factor.bin;
    entry["peaks"] = factor.peaks;
    const size_t shown = std::min(factor.values.size(), kMostChannelsInJson);
    entry["values"] = ShortArray(std::vector<double>(
        factor.values.begin(), factor.values.begin() + static_cast<std::ptrdiff_t>(shown)));
    entry["values_left_out"] = factor.values.size() - shown;
    json["factors"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kShapeMismatch:
      return "shape-mismatch";
    case Outcome::kDtypeMismatch:
      return "dtype-mismatch";
    case Outcome::kNothingCompared:
      break;
  }
  return "nothing-compared";
}

nlohmann::ordered_json ComparisonJson(const Comparison& comparison) {
  const auto complex = [](proto::DType dtype) {
    return dtype == proto::DType::kComplex64 || dtype == proto::DType::kComplex128;
  };
  const bool with_imaginary =
      complex(comparison.candidate_dtype) || complex(comparison.reference_dtype);
  Json json;
  json["name"] = comparison.name;
  json["candidate_dtype"] = proto::Name(comparison.candidate_dtype);
  json["reference_dtype"] = proto::Name(comparison.reference_dtype);
  json["shape"] = comparison.shape;
  json["verdict"] = ToJson(comparison.verdict);
  json["patterns"] = Json::array();
  for (const PatternHint& hint : comparison.patterns) {
    Json entry;
    entry["kind"] = hint.kind;
    entry["text"] = hint.text;
    entry["evidence"] = hint.evidence;
    entry["confidence"] = Number(hint.confidence);
    json["patterns"].push_back(std::move(entry));
  }
  json["whole"] = ToJson(comparison.whole);
  json["worst"] = ToJson(comparison.worst, with_imaginary);
  json["worst_relative"] = ToJson(comparison.worst_relative, with_imaginary);
  json["histograms"]["ulps"] = comparison.histograms.ulps;
  json["histograms"]["decades"] = comparison.histograms.decades;
  json["axes"] = Json::array();
  for (const Axis& axis : comparison.axes) json["axes"].push_back(ToJson(axis));
  json["terms"] = Json::array();
  for (const RankOneTerm& term : comparison.terms) json["terms"].push_back(ToJson(term));
  json["heat"] = ToJson(comparison.heat);
  return json;
}

}  // namespace ops_debug::analysis
